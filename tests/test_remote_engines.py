"""Engines that run elsewhere, for real: vLLM's own server, our deployment on Ray Serve; both on loopback."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import free_port, vllm_config

from rag_pipeline import pipeline, schema
from rag_pipeline.config import Config
from rag_pipeline.embedding.endpoint import EndpointEngine
from rag_pipeline.embedding.engine_args import engine_environment
from rag_pipeline.embedding.model import Model, find_model, load_model
from rag_pipeline.embedding.remote import PromptRefusedError, RemoteEngine
from rag_pipeline.errors import EmbeddingError
from rag_pipeline.records import Report
from rag_pipeline.schema import from_vectors
from rag_pipeline.store import Layout
from rag_pipeline.store.lance import ChunkTable

NOTES = "sample_docs/notes"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """The sample notes, to index."""
    return Path(shutil.copytree(Path(__file__).parent.parent / NOTES, tmp_path / "docs"))


@pytest.fixture
def vllm_server(tmp_path: Path) -> Iterator[str]:
    """VLLM's own OpenAI-compatible server with the default model, on a free port; its base URL."""
    config, port = Config(), free_port()
    model = str(find_model(config.recipe.embedding.model))
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--runner", "pooling"]
    command += ["--served-model-name", "minilm", "--host", "127.0.0.1", "--port", str(port), "--enforce-eager"]
    log = (tmp_path / "server.log").open("w")
    environment = {**os.environ, **engine_environment(on_gpu=False)}
    with subprocess.Popen([*command, "--dtype", "float32"], env=environment, stdout=log, stderr=log) as server:
        try:
            for _ in range(300):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                    break
                assert server.poll() is None, (tmp_path / "server.log").read_text()[-2000:]
                time.sleep(1)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


def with_engine(config: Config, engine: str, index: Path, **runtime: Any) -> Config:
    """The same config with another engine and another index."""
    data = config.model_dump()
    data["recipe"]["embedding"]["engine"] = engine
    return Config.model_validate({**data, "output": str(index), "runtime": {**data["runtime"], **runtime}})


def assert_same_rows(report: Report, index: Path, real_index: tuple[Path, Report]) -> None:
    """What a remote engine made is what vLLM in our own actors made of the same files."""
    wanted = ChunkTable.open(Layout.at(real_index[0])).reader().read_all()
    made = ChunkTable.open(Layout.at(index)).reader().read_all()
    vectors = dict(zip(wanted["prompt_hash"].to_pylist(), from_vectors(wanted["vector"]), strict=True))
    assert made.num_rows == report.chunks["embedded"] > 5
    for prompt_hash, vector in zip(made["prompt_hash"].to_pylist(), from_vectors(made["vector"]), strict=True):
        assert float(vector @ vectors[prompt_hash]) > 0.999


def test_vllm_s_own_server_is_an_engine(
    notes: Path, tmp_path: Path, vllm_server: str, real_index: tuple[Path, Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engine `openai` against vLLM's server gives the vectors of the engine in our actors; a wrong name is told."""
    index = tmp_path / "index"
    endpoint = {"url": vllm_server, "model": "minilm"}
    config = with_engine(vllm_config(notes, index), "openai", index, endpoint=endpoint)
    assert_same_rows(pipeline.index(config), index, real_index)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    row = {"kind": schema.EMBED, "prompt_hash": "0" * 32, "token_ids": [101, 102]}
    with pytest.raises(EmbeddingError, match=r"endpoint http://127.*nobody"):
        wrong = EndpointEngine(load_model(config.recipe.embedding), vllm_server, "nobody", requests=1)
        wrong(schema.rows_to_table([row], schema.stream_schema(384)))


def test_a_ray_serve_deployment_is_an_engine(
    notes: Path, tmp_path: Path, real_index: tuple[Path, Report], ray_once: None
) -> None:
    """Engine `ray-serve` asks our deployment and gives the same vectors; what it cannot take is refused."""
    serve = pytest.importorskip("ray.serve")
    from rag_pipeline.embedding.ray_serve import ServeEngine, app

    index = tmp_path / "index"
    config = with_engine(vllm_config(notes, index), "ray-serve", index, serve_app="test")
    serve.run(app({}), name="test", route_prefix=None)
    try:
        assert_same_rows(pipeline.index(config), index, real_index)
        embed = serve.get_app_handle("test").embed
        good = embed.remote([[101, 2054, 102]]).result()
        for bad, reason in (([], "0 tokens"), ([101] * 257, "257 tokens"), ([101, 10**6, 102], "index out of range")):
            assert reason in embed.remote([[101, 2054, 102], bad]).result()
            assert np.allclose(embed.remote([[101, 2054, 102]]).result(), good)
        many = [[[101, 1000 + 50 * call + n, 102] for n in range(50)] for call in range(8)]
        alone = [embed.remote(prompts).result() for prompts in many]
        for made, wanted in zip([embed.remote(prompts) for prompts in many], alone, strict=True):
            assert np.allclose(made.result(), wanted, atol=1e-5)  # a replica is asked twice at once
        with pytest.raises(EmbeddingError, match="makes vectors of fingerprint"):
            ServeEngine(load_model(vllm_config(notes, index, dtype="float16").recipe.embedding), "test")
    finally:
        serve.shutdown()


class Picky(RemoteEngine):
    """An engine that refuses a request with the token 666 in it, and makes vectors of a given length."""

    def __init__(self, model: Model, dimension: int) -> None:
        super().__init__(model, "picky", 2, prompts_per_request=4)
        self._dimension = dimension
        self._tested = True

    def _request(self, ids: list[list[int]]) -> np.ndarray:
        if any(666 in one for one in ids):
            raise PromptRefusedError("666 is not for me")
        return np.array([[one[0], *[0] * (self._dimension - 1)] for one in ids], dtype=np.float32)


def test_a_refused_request_is_halved_down_to_the_prompt() -> None:
    """One bad prompt of ten costs itself only, and every other row gets its own vector."""
    model = load_model(Config.model_validate({"recipe": {"embedding": {"engine": "hash"}}}).recipe.embedding)
    rows = [
        {"kind": schema.EMBED, "prompt_hash": f"{n:032x}", "token_ids": [n] * (12 - n) + [666] * (n == 7)}
        for n in range(10)
    ]
    made = Picky(model, 64)(schema.rows_to_table(rows, schema.stream_schema(64))).to_pylist()
    assert [row["kind"] for row in made] == [schema.REJECTED if n == 7 else schema.EMBEDDED for n in range(10)]
    assert made[7]["reason"] == "engine: 666 is not for me"
    assert [row["vector"][0] for row in made if row["vector"]] == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    with pytest.raises(EmbeddingError, match="gives 32 dimensions"):
        Picky(model, 32)(schema.rows_to_table(rows[:1], schema.stream_schema(64)))
