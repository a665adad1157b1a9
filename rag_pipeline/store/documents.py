"""Cleaned documents in the log, so that a changed chunk size or filter need not parse a file again.

Keyed by content hash and the fingerprint of all that parses and cleans; equal keys hold equal documents.
Knows nothing of how documents are made.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq

from rag_pipeline.records import Block, Document
from rag_pipeline.store import LOG, Layout, store_errors
from rag_pipeline.store.files import read_ahead
from rag_pipeline.store.parquet import log_files

_SCHEMA = pa.schema([("content_hash", pa.string()), ("fingerprint", pa.string()), ("document", pa.string())])
Key = tuple[str, str]


def write_documents(layout: Layout, run_id: str, name: str, documents: dict[Key, Document]) -> None:
    """Writes documents as one durable file of a run's log, ``documents-<name>.parquet``.

    Raises:
        StoreError: The place refused.
    """
    rows = [
        {"content_hash": content, "fingerprint": fingerprint, "document": _to_json(document)}
        for (content, fingerprint), document in documents.items()
    ]
    _write(layout, f"{layout.run_parts(run_id)}/documents-{name}.parquet", pa.Table.from_pylist(rows, schema=_SCHEMA))


def find_documents(layout: Layout, wanted: Collection[Key]) -> dict[Key, str]:
    """Where the wanted documents lie, as `recall_document` takes it; those the log does not hold are left out."""

    def read_keys(file: str) -> dict[str, list[str]]:
        with store_errors("reading documents", layout.files.where(file)), layout.files.open(file) as handle:
            return dict(pq.ParquetFile(handle).read(columns=["content_hash", "fingerprint"]).to_pydict())

    found: dict[Key, str] = {}
    for file, keys in read_ahead(read_keys, _files(layout)):
        for row, key in enumerate(zip(keys["content_hash"], keys["fingerprint"], strict=True)):
            if key in wanted:
                found[key] = f"{file.removeprefix(LOG + '/')}#{row}"
    return found


def recall_document(layout: Layout, place: str, path: str) -> Document:
    """Reads one document back, under the path its file has now.

    Raises:
        StoreError: It is gone or damaged.
    """
    name, row = place.rsplit("#", 1)
    with store_errors("reading a document", layout.files.where(f"{LOG}/{name}")):
        data = json.loads(_texts(layout, f"{LOG}/{name}")[int(row)])
        blocks = tuple(Block(*block) for block in data.pop("blocks"))
        return Document(path=path, blocks=blocks, **data)


def drop_documents(layout: Layout, current: Collection[str]) -> None:
    """Drops documents of contents that no current file has."""
    for file in _files(layout):
        with store_errors("rewriting documents", layout.files.where(file)):
            table = pq.read_table(pa.BufferReader(layout.files.read(file)))
            kept = table.filter(pa.array([content in current for content in table["content_hash"].to_pylist()]))
            if not kept.num_rows:
                layout.files.delete([file])
            elif kept.num_rows < table.num_rows:
                _write(layout, file, kept)


def _files(layout: Layout) -> list[str]:
    return [f"{LOG}/{run}/{name}" for run, name in log_files(layout, "documents-")]


def _write(layout: Layout, name: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=3, write_page_checksum=True)
    with store_errors("writing documents", layout.files.where(name)):
        layout.files.write(name, memoryview(sink.getvalue()))


@functools.lru_cache(maxsize=8)
def _texts(layout: Layout, name: str) -> list[str]:
    data = pa.BufferReader(layout.files.read(name))
    table = pq.ParquetFile(data, page_checksum_verification=True).read(columns=["document"])
    return list(table.column(0).to_pylist())


def _to_json(document: Document) -> str:
    return json.dumps(
        {
            "media_type": document.media_type,
            "title": document.title,
            "pages": document.pages,
            "partial": document.partial,
            "replaced_chars": document.replaced_chars,
            "repaired": document.repaired,
            "ocr_pages": document.ocr_pages,
            "metadata": document.metadata,
            "blocks": [[block.text, block.kind, block.level, block.page] for block in document.blocks],
        }
    )
