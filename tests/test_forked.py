"""The processes of an engine on CPUs: the right vectors, refusals, and one end for all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from rag_pipeline.config import EmbeddingConfig, RuntimeConfig
from rag_pipeline.embedding.encoder import encode_prompts
from rag_pipeline.embedding.engine_args import engine_environment, engine_kwargs
from rag_pipeline.embedding.forked import ForkedEncoder
from rag_pipeline.embedding.model import load_model
from rag_pipeline.embedding.tokenizer import load_tokenizer

pytestmark = pytest.mark.engine

CONFIG = EmbeddingConfig(dtype="float32")
MODEL = load_model(CONFIG)


def processes_of(pid: int) -> list[psutil.Process]:
    """The engine's processes below one: the first, and its forks."""
    return [child for child in psutil.Process(pid).children(recursive=True) if "forked" in " ".join(child.cmdline())]


def all_end(processes: list[psutil.Process]) -> bool:
    """Whether none of them runs any longer, soon."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes):
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def engine() -> Iterator[ForkedEncoder]:
    """An engine of three processes."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in engine_environment(on_gpu=False, threads=1).items():
            patch.setenv(name, value)
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        encoder = ForkedEncoder(MODEL.path, engine_kwargs(MODEL, CONFIG, RuntimeConfig(), on_gpu=False), 3)
    yield encoder
    encoder.close()


def prompts(count: int) -> tuple[list[str], list[list[int]]]:
    """Texts of different lengths, in no order, and their token ids."""
    texts = [" ".join(["gauge", "tide", "buoy", str(number)] * (1 + number * 7 % 40)) for number in range(count)]
    tokenizer = load_tokenizer(MODEL)
    ids = [[*tokenizer.head_ids, *one.ids, *tokenizer.tail_ids] for one in tokenizer.encode(texts)]
    return texts, ids


@pytest.mark.parametrize("count", [1, 2, 7, 200])
def test_every_prompt_gets_its_own_vector(count: int, engine: ForkedEncoder) -> None:
    """However many prompts are shared among the processes, each vector is that of the prompt in its place."""
    texts, ids = prompts(count)
    vectors = engine.encode(ids)
    assert (vectors.shape, vectors.dtype) == ((count, 384), np.float32)
    assert np.sum(vectors * encode_prompts(MODEL, texts), axis=1).min() >= 0.99999


def test_a_refused_prompt_costs_no_process(engine: ForkedEncoder) -> None:
    """What the engine refuses is raised by its name, and the next call is answered."""
    _, ids = prompts(40)
    with pytest.raises(RuntimeError, match="takes 1 to 256") as refused:
        engine.encode([*ids, [7] * 300])
    assert type(refused.value).__name__ == "ValueError"
    assert engine.encode(ids).shape == (40, 384)


def test_a_process_that_dies_ends_them_all(engine: ForkedEncoder) -> None:
    """The death of one is an error, also of every later call, and the others do not stay behind."""
    processes = processes_of(os.getpid())
    assert len(processes) == 3
    processes[-1].kill()
    for _ in range(2):
        with pytest.raises(ChildProcessError, match="a process of the engine died"):
            engine.encode(prompts(90)[1])
    assert all_end(processes)


_PARENT = """
import time
from rag_pipeline.config import EmbeddingConfig, RuntimeConfig
from rag_pipeline.embedding.engine_args import engine_kwargs
from rag_pipeline.embedding.forked import ForkedEncoder
from rag_pipeline.embedding.model import load_model

config = EmbeddingConfig(dtype="float32")
model = load_model(config)
engine = ForkedEncoder(model.path, engine_kwargs(model, config, RuntimeConfig(), on_gpu=False), 2)
print("up", flush=True)
time.sleep(600)
"""


def test_a_parent_that_is_killed_takes_them_along() -> None:
    """SIGKILL of the process that asks them leaves none of them behind."""
    variables = os.environ | engine_environment(on_gpu=False, threads=1) | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout and any(line == "up\n" for line in parent.stdout)
        processes = processes_of(parent.pid)
        assert len(processes) == 2
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert all_end(processes)
