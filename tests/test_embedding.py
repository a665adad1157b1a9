"""Engines that die, break, refuse and stall: what becomes of their rows, with the real actors and no real model."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rag_pipeline import schema
from rag_pipeline.config import Config, EmbeddingConfig, RuntimeConfig
from rag_pipeline.embedding import engine_args
from rag_pipeline.embedding.model import Model, load_model, shorten
from rag_pipeline.embedding.vllm import Deaths, Engine
from rag_pipeline.errors import ConfigError, EmbeddingError
from rag_pipeline.records import short_hash
from rag_pipeline.session import watched

MODEL = load_model(EmbeddingConfig(engine="hash"))
POISON = 666


class StubEngine(Engine):
    """An engine whose vectors are zeros with the prompt's first id in front, and that ends as a prompt says."""

    def _start(self) -> None:
        self._engine = "up"

    def _encode(self, ids: list[list[int]]) -> np.ndarray:
        folder = Path(self._arguments["folder"])
        first = [one[0] for one in ids]
        if POISON in first:
            with (folder / "deaths").open("a") as log:
                log.write(f"{len(first)}\n")
            match self._arguments["how"]:
                case "dies":
                    os._exit(1)
                case "dies once" if (folder / "deaths").read_text().count("\n") == 1:
                    os._exit(1)
                case "refuses":
                    raise ValueError("not this one")
                case "breaks" if (folder / "deaths").read_text().count("\n") == 1:
                    self._engine = "broken"
        if self._engine == "broken":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return np.array([[number, *[0] * (MODEL.dimension - 1)] for number in first], dtype=np.float32)


def embedded(how: str, folder: Path, rows: int = 40) -> tuple[dict[int, str], list[int]]:
    """Runs rows, one of them poisonous, through one actor; returns reasons by id, and how large each fatal call was."""
    import ray

    numbers = [*range(100, 100 + rows), POISON]
    table = schema.rows_to_table(
        ({"kind": schema.EMBED, "ordinal": n, "token_ids": [n, 2], "prompt_hash": short_hash(str(n))} for n in numbers),
        schema.stream_schema(MODEL.dimension),
    )
    deaths = ray.remote(num_cpus=0)(Deaths).remote()
    dataset = ray.data.from_arrow(table).map_batches(
        StubEngine,
        fn_constructor_args=(MODEL, {"folder": str(folder), "how": how}, deaths, False),
        batch_size=None,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=1),
        num_cpus=0.1,
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parent)}},
    )
    out = pa.concat_tables(dataset.iter_batches(batch_size=None, batch_format="pyarrow"))
    assert sorted(out["ordinal"].to_pylist()) == sorted(numbers)
    for row in out.to_pylist():
        assert row["kind"] == schema.REJECTED or row["vector"][0] == row["ordinal"]
    sizes = [int(line) for line in (folder / "deaths").read_text().split()]
    return {row["ordinal"]: row["reason"] for row in out.to_pylist() if row["kind"] == schema.REJECTED}, sizes


def test_an_engine_that_dies_is_replaced_and_its_batch_runs_again(tmp_path: Path, ray_once: None) -> None:
    """A death that does not come again costs nothing: all rows get their vectors."""
    assert embedded("dies once", tmp_path) == ({}, [41, 41])


def test_a_prompt_that_kills_engines_is_found_and_given_up(tmp_path: Path, ray_once: None) -> None:
    """Twice with the same block, then halves: only the prompt that kills is rejected, in few deaths."""
    refused, sizes = embedded("dies", tmp_path)
    assert refused == {POISON: "engine: an engine died of it"}
    assert sizes[:2] == [41, 41] and len(sizes) <= 2 + 6


def test_a_prompt_that_is_refused_costs_no_engine(tmp_path: Path, ray_once: None) -> None:
    """The engine's own words become the row's reason; its neighbours are embedded."""
    refused, _ = embedded("refuses", tmp_path)
    assert refused == {POISON: "engine: ValueError: not this one"}


def test_an_engine_that_is_broken_is_replaced(tmp_path: Path, ray_once: None) -> None:
    """After an error that leaves the engine useless no row is rejected: another engine does them."""
    assert embedded("breaks", tmp_path)[0] == {}


def test_a_run_without_progress_is_stopped() -> None:
    """When nothing comes for `stall_timeout_s` the run ends and says so; blocks before it are handed on."""

    def blocks() -> Any:
        yield 1
        threading.Event().wait(60)

    started = time.monotonic()
    seen = []
    with pytest.raises(EmbeddingError, match=r"nothing was finished for 0\.3 s"):
        for block in watched(blocks(), 0.3):
            seen.append(block)
    assert seen == [1] and time.monotonic() - started < 5


def test_watching_changes_nothing_else() -> None:
    """Blocks come in order, errors come as they are, and an early end leaves nothing waiting."""
    assert list(watched(iter(range(50)), 5)) == list(range(50))

    def failing() -> Any:
        yield 1
        raise KeyError("odd")

    with pytest.raises(KeyError, match="odd"):
        list(watched(failing(), 5))
    for _ in watched(iter(range(50)), 5):
        break


@pytest.mark.parametrize(
    ("megabytes", "gpu_gib", "gpus", "expected"),
    [
        (90, 139, 1, (8, 1 / 8)),
        (90, 139, 2, (16, 1 / 8)),
        (1300, 139, 1, (4, 1 / 4)),
        (9000, 139, 2, (2, 1.0)),
        (90, 16, 1, (5, 1 / 5)),
        (1300, 8, 1, (1, 1.0)),
        (90, 139, 0, (1, 0)),
    ],
)
def test_engines_by_model_and_card(
    megabytes: int,
    gpu_gib: int,
    gpus: int,
    expected: tuple[int, float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small models share a GPU among as many engines as help and fit; without one there is a single engine."""
    (tmp_path / "config.json").write_text("{}")
    with (tmp_path / "model.safetensors").open("wb") as weights:
        weights.write((2).to_bytes(8, "little") + b"{}")
        weights.truncate(megabytes * 2**20)
    monkeypatch.setattr(engine_args, "_gpu_bytes", lambda: gpu_gib * 2**30)
    model = Model("m", str(tmp_path), "r", 8, 128, "mean", True, "", "", "auto")
    assert engine_args.count_engines(model, EmbeddingConfig(), RuntimeConfig(), gpus) == expected


def test_tensor_parallel_engines_get_whole_gpus() -> None:
    """An engine over two GPUs is given two, as often as there are pairs; more than there are is refused."""
    config = EmbeddingConfig(engine_args={"tensor_parallel_size": 2})
    assert engine_args.count_engines(MODEL, config, RuntimeConfig(), 4) == (2, 2)
    with pytest.raises(ConfigError, match="over 2 GPUs, but Ray has 1"):
        engine_args.count_engines(MODEL, config, RuntimeConfig(), 1)


def test_vectors_are_shortened_and_normalized_again() -> None:
    """`recipe.embedding.dimension` keeps the first numbers; more than the model has is refused, and so is none."""
    model = load_model(EmbeddingConfig(dimension=32))
    vectors = np.random.default_rng(1).normal(size=(5, 384)).astype(np.float32)
    made = shorten(model, vectors)
    assert made.shape == (5, 32) and np.allclose(np.linalg.norm(made, axis=1), 1)
    assert np.allclose(made[0] / made[0, 0], vectors[0, :32] / vectors[0, 0])
    assert model.fingerprint != load_model(EmbeddingConfig()).fingerprint
    with pytest.raises(ConfigError, match="385, but"):
        load_model(EmbeddingConfig(dimension=385))


def test_a_model_can_lie_below_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A remote folder is fetched once, and is the same model as the local one; a wrong URL says what is wrong."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    local = load_model(EmbeddingConfig())
    remote = load_model(EmbeddingConfig(model=f"file://{local.path}"))
    assert remote.fingerprint == local.fingerprint and Path(remote.path).is_relative_to(tmp_path)
    assert load_model(EmbeddingConfig(model=f"file://{local.path}")).path == remote.path
    with pytest.raises(ConfigError, match="cannot be read"):
        load_model(EmbeddingConfig(model=f"file://{tmp_path}/nowhere"))


def test_an_endpoint_must_be_named() -> None:
    """Engine `openai` without a URL is refused with what to set."""
    from rag_pipeline.embedding.endpoint import embed_endpoint

    with pytest.raises(ConfigError, match=r"runtime\.endpoint\.url"):
        embed_endpoint(None, MODEL, Config().runtime)
