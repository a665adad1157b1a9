"""A cluster of several real Ray nodes on this machine: promised GPUs, shared storage, a node that is lost mid-run."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, free_port, hash_config

from rag_pipeline import errors, maintenance, pipeline
from rag_pipeline.cli.parser import make_parser
from rag_pipeline.config import Config, EmbeddingConfig, RuntimeConfig, load_config
from rag_pipeline.embedding import engine_args
from rag_pipeline.embedding.model import load_model
from rag_pipeline.embedding.vllm import Deaths
from rag_pipeline.store import Layout
from rag_pipeline.store.current import digest_rows
from rag_pipeline.store.lance import ChunkTable

CONFIGS = ROOT / "configs" / "cluster"
BIN = Path(sys.executable).parent
ENV = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SLURM_"))},
    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "1000",  # a lost node is noticed in seconds
}
HAS_NAMESPACES = subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode == 0


def start_options(cpus: int, gpus: int, head: bool) -> list[str]:
    """Arguments of `ray start` for one of several nodes of a machine: small, on ports of its own."""
    ports = ["metrics-export", "dashboard-agent-listen", *(["ray-client-server"] if head else [])]
    options = [f"--num-cpus={cpus}", f"--num-gpus={gpus}", "--object-store-memory=100000000"]
    options += [f"--{name}-port={free_port()}" for name in ports]
    return [*options, "--include-log-monitor=false", *(["--no-monitor", "--include-dashboard=false"] if head else [])]


class Cluster:
    """Nodes started with `ray start`, each with all its processes in a group of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, cpus: int, *wrapper: str) -> None:
        """Starts a node that claims to have one GPU, the first one as head; again where Ray gives it up after 30 s."""
        head = not self.nodes
        place = ["--head", f"--port={self.port}"] if head else [f"--address={self.address}"]
        command = [*wrapper, str(BIN / "ray"), "start", "--block", *place, *start_options(cpus, 1, head)]
        env = {**ENV, "RAY_TMPDIR": str(self.folder)}
        log = self.folder / f"{name}.log"
        for _ in range(3):
            with log.open("wb") as out:
                node = subprocess.Popen(command, env=env, stdout=out, stderr=out, start_new_session=True)
            self.nodes[name] = node
            wait_until(lambda: "Ray runtime started" in log.read_text() or node.poll() is not None)  # noqa: B023
            if node.poll() is None:
                return
        raise AssertionError(log.read_text())

    def kill(self, name: str) -> None:
        """Takes a node away, all its processes at once."""
        process = self.nodes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def index(self, docs: Path, index: Path, **runtime: Any) -> subprocess.Popen[str]:
        """Starts a run on this cluster."""
        config = self.folder / f"{index.name}-{time.monotonic_ns()}.yaml"
        runtime = {"ray_address": self.address, "files_per_task": 1, "commit_interval_s": 0, **runtime}
        config.write_text(yaml.safe_dump({"recipe": {"embedding": {"engine": "hash"}}, "runtime": runtime}))
        command = [*RAG, "index", str(docs), "--index", str(index), "-c", str(config), "--json"]
        return subprocess.Popen(command, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


RAG = [sys.executable, "-m", "rag_pipeline.cli"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head and a worker; the worker has nothing in the folder `private`, where namespaces can be had."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:  # short: sockets
        made = Cluster(Path(folder))
        private = made.folder / "private"
        private.mkdir()
        hide = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(private))
        try:
            made.start("head", 1)
            made.start("worker", 2, *(hide if HAS_NAMESPACES else ()))
            yield made
        finally:
            for name in list(made.nodes)[::-1]:
                made.kill(name)


def wait_until(condition: Callable[[], object], timeout_s: float = 90) -> None:
    """Waits for something that must come true."""
    give_up = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def many_files(folder: Path, count: int) -> Path:
    """Files of a few paragraphs, some of them alike."""
    folder.mkdir(parents=True)
    for number in range(count):
        paragraphs = (f"Paragraph {n} of document {number % 40} is about tides." for n in range(number % 7 + 1))
        (folder / f"file{number:03}.md").write_text("# Document\n\n" + "\n\n".join(paragraphs))
    return folder


def digest(index: Path) -> dict[str, int]:
    """What the table holds."""
    return digest_rows(ChunkTable.open(Layout.at(str(index))).scan(), Counter())


def test_a_run_says_which_gpus_are_missing(cluster: Cluster, docs: Path, tmp_path: Path) -> None:
    """When the time is over: how many of how many, what each node has, what to do; nothing is written."""
    run = cluster.index(docs, tmp_path / "index", wait_for_gpus=2, wait_timeout_s=120)
    assert (run.wait(), json.loads(run.communicate()[0])["files"]) == (0, {"indexed": 5})
    run = cluster.index(docs, tmp_path / "other", wait_for_gpus=3, wait_timeout_s=0.2)
    stdout, stderr = run.communicate()
    assert run.returncode == errors.EXIT_STOPPED and stdout == ""
    assert "1 of 3 GPUs are missing" in stderr and stderr.count(") has 1") == 2 and "wait_timeout_s" in stderr
    assert not list((tmp_path / "other").glob("parquet/run=*/part-*"))


@pytest.mark.skipif(not HAS_NAMESPACES, reason="needs mount namespaces")
@pytest.mark.parametrize("what", ["index", "source"])
def test_folders_that_a_node_does_not_see_are_refused(what: str, cluster: Cluster, docs: Path, tmp_path: Path) -> None:
    """Before any work, naming node, folder and remedy: its workers would write, or read, somewhere else."""
    places = {"index": tmp_path / "index", "source": docs}
    places[what] = many_files(cluster.folder / "private" / what, 1) / ("index" if what == "index" else "")
    run = cluster.index(places["source"], places["index"], wait_for_gpus=2, wait_timeout_s=120)
    _, stderr = run.communicate()
    assert run.returncode == errors.EXIT_REFUSED
    assert f"does not see this node's {what} {places[what]}" in stderr and "s3://" in stderr
    assert not list(places["index"].glob(".probe*")) and not list(places["index"].glob("parquet/run=*/part-*"))


def test_a_lost_node_costs_nothing_but_its_work(cluster: Cluster, tmp_path: Path, ray_once: None) -> None:
    """A node killed mid-run: the run ends well, the table is that of an undisturbed run, the log agrees."""
    docs = many_files(tmp_path / "docs", 48)
    index = tmp_path / "index"
    run = cluster.index(docs, index, wait_for_gpus=2, wait_timeout_s=120)
    wait_until(lambda: len(list(index.glob("parquet/run=*/part-*"))) > 5)
    cluster.kill("worker")
    assert run.poll() is None
    stdout, stderr = run.communicate(timeout=120)
    assert run.returncode == errors.EXIT_OK, stderr
    assert json.loads(stdout)["files"] == {"indexed": 48}  # what Ray prints of the lost node is not on stdout
    assert "dead" in stderr
    assert maintenance.verify(Config().with_paths(index=str(index))) == []
    pipeline.index(hash_config(docs, tmp_path / "undisturbed"))
    assert digest(index) == digest(tmp_path / "undisturbed")


def test_an_engine_lost_with_its_node_is_no_death(ray_once: None) -> None:
    """Only engines that died on a node that lives are held against their prompts, and against the run."""
    import ray

    deaths, here = Deaths(), ray.nodes()[0]["NodeID"]
    assert [deaths.begin("block", "gone") for _ in range(100)][-1] == (0, 0)
    assert deaths.begin("block", here) == (0, 0)
    assert deaths.begin("block", "gone") == (1, 1)
    assert deaths.begin("block", here) == (1, 1)
    assert deaths.begin("block", here) == (2, 2)
    deaths.end("block")
    assert deaths.begin("block", here) == (0, 2)


@pytest.mark.parametrize(
    ("nodes", "replicas", "size", "expected"),
    [
        ([{"CPU": 0}, {"CPU": 8, "GPU": 4}, {"CPU": 8, "GPU": 4}], 12, 1, (12, 1 / 2)),
        ([{"GPU": 4}, {"GPU": 4}, {"GPU": 4}], "auto", 3, (3, 3)),
        ([{"CPU": 0}, {"CPU": 8}, {"CPU": 8}], "auto", 1, (2, 0)),
    ],
)
def test_engines_fit_the_nodes(nodes: list[dict[str, float]], replicas: Any, size: int, expected: Any) -> None:
    """A share fits whole engines on a GPU, several GPUs are those of one node, CPUs have an engine a node."""
    recipe, runtime = EmbeddingConfig(engine_args={"tensor_parallel_size": size}), RuntimeConfig(replicas=replicas)
    gpus = int(sum(node.get("GPU", 0) for node in nodes))
    assert engine_args.count_engines(load_model(recipe), recipe, runtime, gpus, nodes) == expected


def test_an_engine_larger_than_any_node_is_refused() -> None:
    """GPUs of two nodes do not make one engine: said at once, not by waiting for ever."""
    recipe = EmbeddingConfig(engine_args={"tensor_parallel_size": 8})
    with pytest.raises(errors.ConfigError, match="over 8 GPUs, but the largest of 2 nodes has 4"):
        engine_args.count_engines(load_model(recipe), recipe, RuntimeConfig(), 8, [{"GPU": 4}, {"GPU": 4}])


def bootstrap(folder: Path, port: int, rank: dict[str, str], *command: str) -> subprocess.Popen[str]:
    """One rank of the bootstrap script."""
    head = "0" in rank.values()
    env = {**ENV, **rank, "RAY_TMPDIR": str(folder), "RAY_PORT": str(port), "MASTER_ADDR": "127.0.0.1"}
    env |= {"RAY_START_ARGS": shlex.join(start_options(1, 0, head)), "JOIN_TIMEOUT_S": "120"}
    script = [str(CONFIGS / "bootstrap.sh"), *command]
    return subprocess.Popen(script, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ranks_make_a_cluster_run_a_command_and_end_with_it(docs: Path, tmp_path: Path) -> None:
    """Rank 0 runs it when both are there, its exit code is the command's; the other ends too; no Ray is left."""
    (tmp_path / "c.yaml").write_text("recipe: {embedding: {engine: hash}}\nruntime: {ray_address: auto}\n")
    command = ["rag-pipeline", "index", str(docs), "--index", str(tmp_path / "i"), "-c", str(tmp_path / "c.yaml")]
    (docs / "broken.pdf").write_bytes(b"%PDF-1.4 nothing of the kind")
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        port = free_port()
        second = bootstrap(Path(folder), port, {"SLURM_PROCID": "1", "SLURM_NNODES": "2"}, *command)
        first = bootstrap(Path(folder), port, {"RANK": "0", "WORLD_SIZE": "2"}, *command, "--json")
        stdout, stderr = first.communicate(timeout=200)
        assert first.returncode == errors.EXIT_FILES_FAILED, stderr
        assert json.loads(stdout)["files"] == {"failed:parse": 1, "indexed": 5}
        _, stderr = second.communicate(timeout=60)
        assert second.returncode == 0, stderr
        wait_until(lambda: not _ray_processes(folder), 30)


def _ray_processes(folder: str) -> list[str]:
    listed = subprocess.run(["pgrep", "-f", folder], check=False, capture_output=True, text=True)
    return listed.stdout.split()


@pytest.mark.parametrize(
    ("env", "words", "message"),
    [
        ({}, ["true"], "neither RANK and WORLD_SIZE nor SLURM_PROCID and SLURM_NNODES"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, ["true"], "MASTER_ADDR is not set"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, [], "no command"),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "JOIN_TIMEOUT_S": "1"}, ["true"], "no head at"),
    ],
)
def test_a_bootstrap_that_cannot_be_says_why(env: dict[str, str], words: list[str], message: str) -> None:
    """One line and exit code 1, before any Ray is started."""
    script = [str(CONFIGS / "bootstrap.sh"), *words]
    env = {**ENV, "RAY_PORT": str(free_port()), **env}
    done = subprocess.run(script, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("bootstrap: ") and message in done.stderr


# As KubeRay 1.7's definitions of ray.io/v1 have them.
JOB_FIELDS = {"entrypoint", "submissionMode", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "backoffLimit"}
HEAD_FIELDS = {"rayStartParams", "template"}
WORKER_FIELDS = {"groupName", "replicas", "minReplicas", "maxReplicas", *HEAD_FIELDS}


def test_the_rayjob_is_one_kuberay_takes_and_runs_a_real_command(tmp_path: Path) -> None:
    """Every field is known to KubeRay, the command line and its config to us, and the GPUs waited for exist."""
    config_map, job = yaml.safe_load_all((CONFIGS / "kuberay-rayjob.yaml").read_text())
    spec = job["spec"]
    groups = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert set(spec) == {*JOB_FIELDS, "rayClusterSpec"} and spec["submissionMode"] == "K8sJobMode"
    assert set(spec["rayClusterSpec"]) == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    assert set(spec["rayClusterSpec"]["headGroupSpec"]) == HEAD_FIELDS
    assert all(set(group) == WORKER_FIELDS for group in groups)

    program, *words = shlex.split(spec["entrypoint"])
    arguments = make_parser().parse_args(words)
    name = Path(arguments.config).name
    (tmp_path / name).write_text(config_map["data"][name])
    runtime = load_config(tmp_path / name).runtime
    limits = [group["template"]["spec"]["containers"][0]["resources"]["limits"] for group in groups]
    promised = sum(
        group["replicas"] * int(limit["nvidia.com/gpu"]) for group, limit in zip(groups, limits, strict=True)
    )
    assert program == "rag-pipeline" and arguments.run.__name__ == "index_command"
    assert runtime.ray_address == "auto" and runtime.wait_for_gpus == promised


def test_waiting_for_gpus_without_using_them_is_refused() -> None:
    """`device: cpu` and `wait_for_gpus` contradict each other."""
    with pytest.raises(ValueError, match="uses no GPU"):
        RuntimeConfig(device="cpu", wait_for_gpus=1)
