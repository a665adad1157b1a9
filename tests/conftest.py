"""What tests share: one Ray session, folders of documents, the fake engine's config, one real index."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_pipeline import pipeline
from rag_pipeline.config import Config, ParseConfig
from rag_pipeline.errors import DocumentError
from rag_pipeline.records import Document, FileBytes, Limits, Report
from rag_pipeline.stages.parse import parse

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def sample_docs() -> Path:
    """The repository's sample documents; not to be written to."""
    return ROOT / "sample_docs"


@pytest.fixture(scope="session")
def ray_once() -> Iterator[None]:
    """One Ray for all tests of the session: runs use it and leave it alone, which saves each its start."""
    from rag_pipeline.session import ray_session

    with ray_session(Config(), verbose=False):
        yield


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A small folder of documents to change at will."""
    folder = tmp_path / "docs"
    (folder / "deep" / "er").mkdir(parents=True)
    for number in range(4):
        text = f"# Title {number}\n\nThe first paragraph of file {number} speaks of subject {number * 7}.\n"
        (folder / f"file{number}.md").write_text(text, encoding="utf-8")
    (folder / "deep" / "er" / "note.txt").write_text("A note about lighthouses.\n\nAnd one about tides.\n")
    for file in folder.rglob("*.*"):  # older than a run, so that size and time alone say "unchanged"
        os.utime(file, (time.time() - 3600,) * 2)
    return folder


Index = Callable[..., Report]


@pytest.fixture
def index(ray_once: None, tmp_path: Path) -> Index:
    """Runs the pipeline with the fake engine: `index(docs, recipe={...}, allow_deletes=True)`."""

    def run(source: Path, allow_deletes: bool = False, **sections: Any) -> Report:
        limits = Limits(allow_deletes=allow_deletes)
        return pipeline.index(hash_config(source, tmp_path / "index", **sections), limits)

    return run


def hash_config(source: Path, index: Path, **sections: Any) -> Config:
    """A config with the fake engine."""
    recipe = {**sections.pop("recipe", {})}
    recipe["embedding"] = {"engine": "hash", **recipe.get("embedding", {})}
    return Config.model_validate({"source": str(source), "output": str(index), "recipe": recipe, **sections})


def vllm_config(source: Path, index: Path, dtype: str = "auto", engine: str = "vllm") -> Config:
    """A config with a real engine."""
    recipe = {"embedding": {"dtype": dtype, "engine": engine}}
    return Config.model_validate({"source": str(source), "output": str(index), "recipe": recipe})


@pytest.fixture(scope="session")
def real_index(tmp_path_factory: pytest.TempPathFactory, sample_docs: Path, ray_once: None) -> tuple[Path, Report]:
    """sample_docs indexed once by the real engine: the index's folder and the run's report."""
    folder = tmp_path_factory.mktemp("real")
    source = folder / "docs"
    shutil.copytree(sample_docs, source)
    return folder / "index", pipeline.index(vllm_config(source, folder / "index"))


def free_port() -> int:
    """A TCP port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def parse_bytes(path: str, data: str | bytes, recipe: ParseConfig | None = None) -> Document:
    """Parses a file that is not on disk."""
    raw = data.encode() if isinstance(data, str) else data
    return parse(FileBytes(path, raw, "hash", len(raw), 0), recipe or ParseConfig())


def state_of(path: str, data: str | bytes, recipe: ParseConfig | None = None) -> str:
    """The state of a file that cannot be parsed; its message must say something."""
    with pytest.raises(DocumentError) as caught:
        parse_bytes(path, data, recipe)
    assert caught.value.message
    return caught.value.state
