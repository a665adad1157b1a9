"""CocoIndex 1: one component a file, memoized; recursive splitter in bytes; a LanceDB table as target.

It follows CocoIndex's own example of text embedding with LanceDB, with chunk size and model as arguments. The
splitter counts bytes: four of them are taken for a token. `--again` is `full_reprocess=True`. Does not know how it
is called or judged.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

os.environ.setdefault("COCOINDEX_DISABLE_USAGE_TRACKING", "1")

import cocoindex as coco
import counted
from cocoindex.connectors import lancedb, localfs
from cocoindex.ops.sentence_transformers import SentenceTransformerEmbedder
from cocoindex.ops.text import RecursiveSplitter
from cocoindex.resources.chunk import Chunk
from cocoindex.resources.file import FileLike, PatternFilePathMatcher
from cocoindex.resources.id import IdGenerator
from numpy.typing import NDArray

BYTES_PER_TOKEN = 4
CONNECTION = coco.ContextKey[lancedb.LanceAsyncConnection]("peers_db")
EMBEDDER = coco.ContextKey[SentenceTransformerEmbedder]("peers_embedder", detect_change=True)
SPLITTER = RecursiveSplitter()


@dataclass
class Row:
    """One chunk as the table holds it."""

    id: int
    path: str
    text: str
    vector: Annotated[NDArray[Any], EMBEDDER]


@coco.fn
async def process_chunk(chunk: Chunk, path: str, ids: IdGenerator, table: lancedb.TableTarget[Row]) -> None:
    """Declares one chunk's row."""
    vector = await coco.use_context(EMBEDDER).embed(chunk.text)
    table.declare_row(row=Row(await ids.next_id(chunk.text), path, chunk.text, vector))


@coco.fn(memo=True)
async def process_file(file: FileLike[Any], table: lancedb.TableTarget[Row], folder: Path, chunk_bytes: int) -> None:
    """Splits one file and declares its rows."""
    path = file.file_path.path.relative_to(folder).as_posix()
    chunks = SPLITTER.split(await file.read_text(), chunk_size=chunk_bytes, chunk_overlap=0, language="markdown")
    await coco.map(process_chunk, chunks, path, IdGenerator(), table)


@coco.fn
async def process_folder(folder: Path, chunk_bytes: int) -> None:
    """Mounts every file of the folder."""
    schema = await lancedb.TableSchema.from_class(Row, primary_key=["id"])
    table = await lancedb.mount_table_target(CONNECTION, table_name="docs", table_schema=schema)
    files = localfs.walk_dir(folder, recursive=True, path_matcher=PatternFilePathMatcher(included_patterns=["**/*.md"]))
    await coco.mount_each(process_file, files.items(), table, folder, chunk_bytes)


def main_index(task: counted.Task) -> None:
    """Runs the app once."""

    @coco.lifespan
    async def lifespan(builder: coco.EnvironmentBuilder) -> AsyncIterator[None]:
        builder.settings.db_path = task.state / "cocoindex.db"
        builder.provide(CONNECTION, await lancedb.connect_async(str(task.state / "lancedb")))
        builder.provide(EMBEDDER, SentenceTransformerEmbedder(task.model))
        yield

    chunk_bytes = task.max_tokens * BYTES_PER_TOKEN
    app = coco.App("Peers", process_folder, folder=task.folder, chunk_bytes=chunk_bytes)
    app.update_blocking(full_reprocess=task.again)


def rows(state: Path) -> Iterator[tuple[str, str, Any]]:
    """Yields (path, text, vector) of everything a query could return."""
    from lancedb import connect

    for row in connect(state / "lancedb").open_table("docs").to_arrow().to_pylist():
        yield row["path"], row["text"], row["vector"]


if __name__ == "__main__":
    counted.run(main_index, rows)
