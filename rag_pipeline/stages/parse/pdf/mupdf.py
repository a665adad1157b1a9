"""PyMuPDF without its layout model, and quiet: the one place that imports it.

Importing PyMuPDF starts its layout model as well: seconds and some 90 MB for each process that only reads text.
`layout` imports that model when it is asked for. Knows nothing of text.
"""

from __future__ import annotations

import sys
from typing import Any

_STARTS_A_MODEL = ("pymupdf.layout", "pymupdf4llm")


def _import_plain() -> Any:
    blocked = [name for name in _STARTS_A_MODEL if name not in sys.modules]
    sys.modules.update(dict.fromkeys(blocked))  # type: ignore[arg-type]  # None: importing it raises ImportError
    try:
        import pymupdf
    finally:
        for name in blocked:
            del sys.modules[name]
    return pymupdf


pymupdf = _import_plain()
mupdf = pymupdf.mupdf
pymupdf.TOOLS.mupdf_display_errors(False)
pymupdf.TOOLS.mupdf_display_warnings(False)
