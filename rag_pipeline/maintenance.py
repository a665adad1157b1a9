"""Maintenance: look after an index without touching its source. Knows nothing of Ray or engines."""

from __future__ import annotations

from rag_pipeline.config import Config
from rag_pipeline.errors import IndexMissingError
from rag_pipeline.records import ManifestRow
from rag_pipeline.store import Layout
from rag_pipeline.store.manifest import Manifest


def status(config: Config) -> list[ManifestRow]:
    """Every file the index knows, sorted by path.

    Raises:
        IndexMissingError: There is no index.
    """
    layout = Layout.at(config.output.path)
    manifest = Manifest(layout)
    if not manifest.exists():
        raise IndexMissingError(f"index {layout.root}: nothing is indexed here; run `rag-pipeline index` first")
    known = manifest.load()
    return [known[path] for path in sorted(known)]
