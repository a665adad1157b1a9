"""Filter: a verdict on one chunk, never an edit. Knows nothing of other chunks or of vectors."""

from __future__ import annotations

from rag_pipeline.config import FilterConfig
from rag_pipeline.records import Chunk


def reject_reason(chunk: Chunk, settings: FilterConfig) -> str | None:
    """Says why a chunk gets no vector (``too_short``, ``not_text``), or ``None`` when it gets one."""
    visible = "".join(chunk.text.split())
    if len(visible) < settings.min_chars:
        return "too_short"
    if sum(map(str.isalnum, visible)) < settings.min_text_ratio * len(visible):
        return "not_text"
    return None
