"""What the peers' programs share: their command line, the files, and a count of the texts handed to the model.

All three tools embed with `SentenceTransformer.encode`, so that one wrapper around it counts for all. It appends
one line a call to the file `PEERS_PROGRESS`, keeps every vector in the folder `PEERS_KNOWN`, and, where
`PEERS_ANSWER` is set, answers from there instead of computing: a fresh index that is only a yardstick need not be
computed twice. Does not know how any of the three indexes, nor what a right result is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SPECIAL_TOKENS = 2  # [CLS] and [SEP], which a splitter that counts plain tokens does not see

ROW = pa.schema({"path": pa.string(), "text": pa.string(), "vector": pa.list_(pa.float32())})


@dataclass(frozen=True)
class Task:
    """One call of a peer: index this folder into this state, with these settings."""

    folder: Path
    state: Path
    model: str
    max_tokens: int
    again: bool


def run(index: Callable[[Task], None], rows: Callable[[Path], Iterator[tuple[str, str, Any]]]) -> None:
    """Runs a peer's program: index and report as JSON, then write what the store returns as Parquet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("state", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--again", action="store_true", help="use the tool's own switch for redoing everything")
    parser.add_argument("--rows-only", action="store_true", help="do not index, only write the rows")
    parser.add_argument("--rows", type=Path, required=True)
    args = parser.parse_args()
    args.state.mkdir(parents=True, exist_ok=True)
    if not args.rows_only:
        embedded = count_texts(args.model)
        index(Task(args.folder, args.state, args.model, args.max_tokens, args.again))
        print(json.dumps({"embedded": embedded(), "ended": time.time()}), flush=True)
    stored = [{"path": path, "text": text, "vector": list(map(float, v))} for path, text, v in rows(args.state)]
    pq.write_table(pa.Table.from_pylist(stored, ROW), args.rows)


def read_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields (path below the folder, text) of every Markdown file, in order of path."""
    for file in sorted(folder.rglob("*.md")):
        yield file.relative_to(folder).as_posix(), file.read_text(encoding="utf-8")


def chroma_rows(state: Path) -> Iterator[tuple[str, str, Any]]:
    """Yields (path, text, vector) of everything the Chroma collection of two of the peers could return."""
    import chromadb

    found = chromadb.PersistentClient(str(state / "chroma")).get_or_create_collection("docs")
    table = found.get(include=["documents", "metadatas", "embeddings"])
    for metadata, text, vector in zip(table["metadatas"], table["documents"], table["embeddings"], strict=True):
        yield metadata["source"], text, vector


def count_texts(model_path: str) -> Callable[[], int]:
    """Wraps `SentenceTransformer.encode`; returns a function that says how many texts it was handed so far."""
    import numpy as np
    from sentence_transformers import SentenceTransformer

    original = SentenceTransformer.encode
    progress = Path(os.environ["PEERS_PROGRESS"])
    memory = Path(os.environ["PEERS_KNOWN"]) / f"{hashlib.sha256(model_path.encode()).hexdigest()[:12]}.pickle"
    known: dict[str, Any] = pickle.loads(memory.read_bytes()) if memory.exists() else {}
    answer = bool(os.environ.get("PEERS_ANSWER"))
    total = 0

    def encode(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal total
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        if not (answer and all(text in known for text in texts)):
            vectors = original(self, texts, *args, **kwargs)
            known.update(zip(texts, np.asarray(vectors), strict=True))
        total += len(texts)
        with progress.open("a") as file:
            file.write(f"{len(texts)}\n")
        vectors = np.stack([known[text] for text in texts])
        return vectors[0] if isinstance(inputs, str) else vectors

    def embedded() -> int:
        new = memory.with_suffix(".new")
        new.write_bytes(pickle.dumps(known))
        new.replace(memory)
        return total

    SentenceTransformer.encode = encode
    return embedded
