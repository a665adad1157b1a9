"""Parsers that end badly, by a file's words; `test_isolation.py` has the isolated child call them."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from rag_pipeline.config import ParseConfig
from rag_pipeline.errors import DocumentError
from rag_pipeline.records import Block, Document, FileBytes


def parse(file: FileBytes, settings: ParseConfig) -> Document:
    """Does what the file says."""
    words = file.data.decode().split()
    calls = Path(words[-1], "calls")
    with calls.open("a") as log:
        log.write(f"{file.path}\n")
    match words[0]:
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "exit":
            os._exit(7)
        case "spin":  # native code that never lets go of the interpreter
            ctypes.PyDLL(None).sleep(600)
        case "wait":
            time.sleep(600)
        case "eat":
            hoard = []
            while True:
                hoard.append(bytearray(os.urandom(1 << 20)) * 8)
        case "gulp":
            return Document(file.path, "text", "", (Block(str(len(bytearray(1 << 40)))),))
        case "once":
            if calls.read_text().count(file.path) == 1:
                os.abort()
        case "refuse":
            raise DocumentError("failed:encrypted", "no key")
        case "raise":
            raise KeyError("odd")
    return Document(file.path, "text", "", (Block(" ".join(words[:-1])),))
