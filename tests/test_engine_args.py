"""What engines are started with, and how large a model is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from rag_pipeline.config import EmbeddingConfig, RuntimeConfig
from rag_pipeline.embedding import engine_args
from rag_pipeline.embedding.model import load_model
from rag_pipeline.embedding.size import Size, computed, model_size

MODEL = load_model(EmbeddingConfig())


def test_arguments_of_the_runtime_reach_the_engine_and_leave_the_fingerprint_alone() -> None:
    """What cannot change a vector is passed to vLLM too, and wins, without making a table's vectors old."""
    recipe = EmbeddingConfig(engine_args={"max_num_seqs": 8, "quantization": "fp8"})
    runtime = RuntimeConfig(engine_args={"max_num_seqs": 16, "gpu_memory_utilization": 0.5})
    model = load_model(recipe)
    arguments = engine_args.engine_kwargs(model, recipe, runtime, on_gpu=False)
    assert (arguments["max_num_seqs"], arguments["gpu_memory_utilization"], arguments["quantization"]) == (
        16,
        0.5,
        "fp8",
    )
    assert "gpu_memory_utilization" not in model.engine_args


def test_a_cpu_engine_keeps_the_memory_of_a_layer_for_the_next() -> None:
    """Results of some megabytes, made and freed again in any thread, are not taken from the kernel page by page."""
    program = """
        import resource, threading

        def layers():
            for _ in range(50):
                for megabytes in (6, 25, 25, 40):
                    b"x" * (megabytes << 20)

        thread = threading.Thread(target=layers)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        thread.start()
        thread.join()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    environment = {**os.environ, **engine_args.engine_environment(on_gpu=False)}
    faults = int(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)
    assert faults < 50_000  # of 1,200,000 pages


@pytest.mark.parametrize(
    ("count", "cpus", "arguments", "expected"),
    [
        (1, [2], {}, (2, "1", 1.0)),
        (1, [16], {}, (8, "2", 1.0)),
        (2, [4, 8], {}, (4, "1", 1.0)),
        (4, [2], {}, (1, "1", 0.25)),
        (1, [4], {"tensor_parallel_size": 2}, (1, "4", 1.0)),
    ],
)
def test_engines_on_cpus_share_the_cores_of_their_node(
    count: int,
    cpus: list[float],
    arguments: dict[str, int],
    expected: tuple[int, str, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process a core, of one thread each up to eight; however many engines, Ray keeps a CPU free for parsing."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    engines = engine_args._on_cpus(count, arguments, cpus)
    assert (engines.processes, engines.environment["OMP_NUM_THREADS"], engines.cpus_each) == expected


def test_the_user_s_number_of_threads_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """With OMP_NUM_THREADS set, an engine has as many processes as fit beside each other."""
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    engines = engine_args._on_cpus(1, {}, [8])
    assert (engines.processes, engines.environment["OMP_NUM_THREADS"]) == (2, "4")


def test_a_models_size_is_that_of_its_weights() -> None:
    """MiniLM multiplies every token with 10.6 million numbers: six layers of twelve squares of 384."""
    size = model_size(MODEL)
    assert (size.layers, size.width) == (6, 384)
    assert size.matrix_parameters == pytest.approx(6 * 12 * 384**2, rel=0.01)
    assert size.weight_bytes == pytest.approx(90.9e6, rel=0.01)
    assert size.flops(tokens=100, chunks=1) == pytest.approx(100 * (2 * 6 * 12 * 384**2 + 4 * 6 * 384 * 100), rel=0.01)


def test_a_model_without_weights_is_measured_by_its_config(tmp_path: Path) -> None:
    """With `load_format: dummy` there is only a config: a BERT-large has 302 million numbers in its matrices."""
    large = {"num_hidden_layers": 24, "hidden_size": 1024, "intermediate_size": 4096, "vocab_size": 30522}
    (tmp_path / "config.json").write_text(json.dumps(large))
    size = model_size(replace(MODEL, path=str(tmp_path)))
    assert size.matrix_parameters == 24 * 12 * 1024**2
    assert size.weight_bytes == 2 * (size.matrix_parameters + 1024 * 30522)


@pytest.mark.parametrize(
    ("cards", "share"), [({"H200": 1}, 0.1011), ({"H200": 2}, 0.0506), ({"GPU": 1}, None), ({}, None)]
)
def test_computed_work_is_a_share_of_known_cards(cards: dict[str, int], share: float | None) -> None:
    """A rate is always told, its share of the peak only where every card is known."""
    found = computed(Size(0, 50_000_000, 0, 0), tokens=1_000_000, chunks=10_000, seconds=1.0, accelerators=cards)
    assert found.get("peak_share") == share
    assert found["model_tflops"] == 100.0
