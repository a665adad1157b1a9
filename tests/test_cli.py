"""The command line: what goes to stdout and stderr, and every exit code a script may rely on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pymupdf
import pytest

from rag_pipeline import errors
from rag_pipeline.cli import main
from rag_pipeline.config import MEDIA_TYPES
from rag_pipeline.store import Layout
from rag_pipeline.store.lock import writer_lock

RAG = [sys.executable, "-m", "rag_pipeline.cli"]


@pytest.fixture
def hash_yaml(tmp_path: Path) -> str:
    """A config file with the fake engine."""
    file = tmp_path / "hash.yaml"
    file.write_text("recipe:\n  embedding: {engine: hash}\n")
    return str(file)


@pytest.fixture
def args(docs: Path, tmp_path: Path, hash_yaml: str) -> list[str]:
    """Arguments that index `docs` into `tmp_path/index`."""
    return [str(docs), "--index", str(tmp_path / "index"), "-c", hash_yaml]


def index_args(args: list[str]) -> list[str]:
    """The same for commands without a source."""
    return args[1:]


def test_index_json_is_one_object_with_the_fixed_keys(
    args: list[str], ray_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """`index --json` prints the report, and nothing else, on stdout."""
    assert main(["index", *args, "--json", "--quiet"]) == errors.EXIT_OK
    report = json.loads(capsys.readouterr().out)
    assert set(report["changes"]) == {"added", "changed", "moved", "deleted", "unchanged"}
    assert set(report["chunks"]) >= {"written", "embedded", "reused", "rejected"}
    assert {"run_id", "files", "tokens", "seconds", "stages"} <= set(report)
    assert all({"seconds", "rows"} == set(stage) for stage in report["stages"].values())


def test_status_plan_and_query_speak_json(args: list[str], ray_once: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Each prints the fields that scripts rely on."""
    main(["index", *args, "--quiet"])
    capsys.readouterr()
    assert main(["status", *index_args(args), "--json"]) == errors.EXIT_OK
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 5
    assert {"path", "state", "reason", "pages", "chunks", "content_hash", "indexed_at"} <= set(rows[0])
    assert main(["plan", *args, "--json"]) == errors.EXIT_OK
    assert json.loads(capsys.readouterr().out)["changes"]["unchanged"] == 5
    assert main(["query", "lighthouses", *index_args(args), "--json", "-k", "2"]) == errors.EXIT_OK
    hits = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [hit["rank"] for hit in hits] == [1, 2]
    fields = {"rank", "score", "path", "page", "section", "start_char", "end_char", "text", "chunk_id"}
    assert set(hits[0]) >= fields


def test_where_filters_and_refuses_what_would_be_ignored(
    args: list[str], ray_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A filter narrows hits before ranking; a second statement, an unknown column and nonsense are refused."""
    main(["index", *args, "--quiet"])
    capsys.readouterr()
    query = ["query", "title", *index_args(args), "--json", "--where"]
    assert main([*query, "path = 'file3.md'"]) == errors.EXIT_OK
    paths = {json.loads(line)["path"] for line in capsys.readouterr().out.splitlines()}
    assert paths == {"file3.md"}
    for bad in ("path = 'a'; DROP TABLE chunks", "no_such_column = 1", "path = ", " "):
        assert main([*query, bad]) == errors.EXIT_REFUSED
        message = capsys.readouterr().err
        assert message.startswith("error: --where") and message.count("\n") == 1


def test_a_missing_folder_is_refused(tmp_path: Path, hash_yaml: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what, where and what to do; exit code 2; no index is left behind."""
    code = main(["index", str(tmp_path / "nowhere"), "--index", str(tmp_path / "index"), "-c", hash_yaml, "--quiet"])
    message = capsys.readouterr().err
    assert code == errors.EXIT_REFUSED
    assert message == f"error: source {tmp_path}/nowhere: no such folder; check the path, or mount it\n"
    assert not (tmp_path / "index").exists()


def test_an_empty_folder_is_refused_at_first(
    tmp_path: Path, hash_yaml: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A first index of nothing is a mistake worth a word."""
    (tmp_path / "docs").mkdir()
    code = main(["index", str(tmp_path / "docs"), "--index", str(tmp_path / "i"), "-c", hash_yaml, "--quiet"])
    assert code == errors.EXIT_REFUSED
    assert "holds no files" in capsys.readouterr().err


def test_an_emptied_folder_withholds_deletes(args: list[str], docs: Path, ray_once: None) -> None:
    """Everything gone at once looks like a missing mount: rows stay, exit code 7."""
    main(["index", *args, "--quiet"])
    for file in docs.rglob("*.*"):
        file.unlink()
    assert main(["plan", *args]) == errors.EXIT_DELETES_WITHHELD
    assert main(["index", *args, "--quiet"]) == errors.EXIT_DELETES_WITHHELD
    assert main(["index", *args, "--quiet", "--allow-deletes"]) == errors.EXIT_OK


def test_a_config_typo_is_refused_with_its_line(docs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every fault of a config on its own line, as file:line: key: message."""
    file = tmp_path / "bad.yaml"
    file.write_text("recipe:\n  chunk:\n    max_token: 100\nruntime:\n  replicas: many\n")
    assert main(["index", str(docs), "-c", str(file)]) == errors.EXIT_REFUSED
    message = capsys.readouterr().err
    assert f"{file}:3: recipe.chunk.max_token: unknown key; did you mean 'max_tokens'?" in message
    assert f"{file}:5: runtime.replicas" in message


def test_an_unknown_model_is_refused(docs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that is nowhere to be had is named before any work starts."""
    file = tmp_path / "model.yaml"
    file.write_text("recipe:\n  embedding: {model: ./no-such-model}\n")
    assert main(["index", str(docs), "-c", str(file), "--quiet"]) == errors.EXIT_REFUSED
    assert capsys.readouterr().err == "error: model ./no-such-model: no such folder\n"


def test_a_query_with_another_model_is_refused(
    args: list[str], ray_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A question is never embedded by a model that did not make the table."""
    main(["index", *args, "--quiet"])
    capsys.readouterr()
    assert main(["query", "lighthouses", "--index", args[2]]) == errors.EXIT_REFUSED
    assert "made with model" in capsys.readouterr().err


def test_commands_without_an_index_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`status` and `query` where nothing is indexed: one line, exit code 2."""
    for command in (["status"], ["query", "anything"]):
        assert main([*command, "--index", str(tmp_path / "none")]) == errors.EXIT_REFUSED
        assert "rag-pipeline index" in capsys.readouterr().err


def test_a_blank_question_and_a_bad_k_are_refused(
    args: list[str], ray_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Questions that cannot have an answer get a line, not a stack."""
    main(["index", *args, "--quiet"])
    for bad in (["  "], ["tides", "-k", "0"]):
        assert main(["query", *bad, *index_args(args)]) == errors.EXIT_REFUSED
    capsys.readouterr()
    assert main(["query", "tides", "-k", "1000", "--json", *index_args(args)]) == errors.EXIT_OK
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_an_index_that_cannot_be_written_is_refused(
    docs: Path, tmp_path: Path, hash_yaml: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No permission, or no folder, at the index: one line, exit code 2, before any work."""
    (tmp_path / "file").write_text("in the way")
    code = main(["index", str(docs), "--index", str(tmp_path / "file" / "index"), "-c", hash_yaml, "--quiet"])
    assert code == errors.EXIT_REFUSED
    assert "cannot be written" in capsys.readouterr().err


def test_a_second_writer_is_refused_and_told_who(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Promise 9: while one process writes, another is refused at once, with the holder's name; exit code 6."""
    layout = Layout.at(args[2])
    layout.make()
    with writer_lock(layout):
        assert main(["index", *args, "--quiet"]) == errors.EXIT_LOCKED
    assert f"process {os.getpid()} on " in capsys.readouterr().err


def test_check_validates_and_prints_fingerprints(hash_yaml: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`check` names the model and the fingerprint of every part."""
    assert main(["check", hash_yaml, "--json"]) == errors.EXIT_OK
    checked = json.loads(capsys.readouterr().out)
    assert set(checked["fingerprints"]) == {"embedding", *MEDIA_TYPES}
    assert main(["check", hash_yaml]) == errors.EXIT_OK


def test_bad_usage_exits_with_2() -> None:
    """An unknown command or option is refused by the parser with exit code 2."""
    for bad in (["frobnicate"], ["index", "--no-such-option"], []):
        done = subprocess.run([*RAG, *bad], capture_output=True, check=False)
        assert done.returncode == errors.EXIT_REFUSED


def test_light_commands_start_neither_ray_nor_torch(args: list[str], ray_once: None) -> None:
    """--help, plan and an index run with nothing to do import no heavy library."""
    main(["index", *args, "--quiet"])
    probe = (
        "import sys; from rag_pipeline.cli import main\n"
        "try: code = main(sys.argv[1:])\nexcept SystemExit as stop: code = stop.code\n"
        "heavy = [name for name in ('ray', 'torch', 'vllm', 'lancedb', 'pymupdf') if name in sys.modules]\n"
        "print(code, heavy, file=sys.stderr)"
    )
    for command in (["--help"], ["plan", *args], ["index", *args, "--quiet"]):
        done = subprocess.run([sys.executable, "-c", probe, *command], capture_output=True, text=True, check=False)
        assert done.stderr.strip().endswith("0 []"), done.stderr


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_with_code_4_and_loses_nothing(
    args: list[str], hash_yaml: str, docs: Path, name: signal.Signals
) -> None:
    """Interrupted in the middle: exit code 4, one line, and the same command again finishes the work."""
    for number in range(600):
        (docs / f"many{number}.txt").write_text(f"Document number {number} of very many, about tides and moons.")
    text = Path(hash_yaml).read_text()
    Path(hash_yaml).write_text(f"{text}\nruntime: {{files_per_task: 2}}\n")  # many blocks: time to be interrupted
    with subprocess.Popen([*RAG, "index", *args], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("indexing"):
                break
        process.send_signal(name)
        rest = process.stderr.read()
        assert process.wait(timeout=60) == errors.EXIT_STOPPED
    assert "error: stopped after" in rest and "run again to resume" in rest
    Path(hash_yaml).write_text(text)
    done = subprocess.run([*RAG, "index", *args, "--json"], capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert done.returncode == errors.EXIT_OK
    assert report["files"] == {"indexed": 605}
    assert 0 < report["changes"]["unchanged"] < 605


@pytest.mark.parametrize("name", ["cpu.yaml", "gpu.yaml", "s3.yaml"])
def test_the_example_configs_are_valid(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every file in configs/ passes `check`."""
    file = Path(__file__).parent.parent / "configs" / name
    assert main(["check", str(file)]) == errors.EXIT_OK


def test_every_example_config_is_tested() -> None:
    """No config is left out of the test above; files that start clusters have tests of their own."""
    folder = Path(__file__).parent.parent / "configs"
    assert {file.name for file in folder.iterdir() if file.is_file()} == {"cpu.yaml", "gpu.yaml", "s3.yaml"}


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A command whose libraries are not installed says what to install; exit code 2."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "--index", "nowhere"]) == errors.EXIT_REFUSED
    assert capsys.readouterr().err == "error: uvicorn is not installed; pip install 'rag-pipeline[serve]'\n"


def test_no_run_that_is_not_all_well_ends_with_0(args: list[str], docs: Path, tmp_path: Path, ray_once: None) -> None:
    """Promise 6: all well is 0; a bad file, doubt, a refused source, a damaged index have codes of their own."""
    assert main(["index", *args, "--quiet"]) == errors.EXIT_OK
    (docs / "bad.pdf").write_bytes(b"%PDF-1.7 and nothing more")
    assert main(["index", *args, "--quiet"]) == errors.EXIT_FILES_FAILED
    assert main(["index", *args, "--quiet"]) == errors.EXIT_FILES_FAILED  # still, though nothing was to be done
    (docs / "bad.pdf").unlink()
    assert main(["index", *args, "--quiet"]) == errors.EXIT_OK
    docs.rename(tmp_path / "away")
    assert main(["index", *args, "--quiet"]) == errors.EXIT_REFUSED
    docs.mkdir()
    assert main(["index", *args, "--quiet"]) == errors.EXIT_DELETES_WITHHELD
    next((tmp_path / "index" / "parquet").glob("run=*/part-*")).unlink()
    assert main(["verify", *index_args(args)]) == errors.EXIT_INCONSISTENT


def test_status_shows_how_well_a_file_was_read(args: list[str], docs: Path, ray_once: None, capsys: Any) -> None:
    """Characters a page, repairs and replaced characters stand in the file's line."""
    with pymupdf.open() as document:
        document.new_page().insert_text((72, 72), "Ten ~ words about a lamp that nobody ever saw burn.")
        data = document.tobytes()
    (docs / "cut.pdf").write_bytes(data[: data.rindex(b"xref")])
    (docs / "odd.txt").write_bytes("Ein schöner Pegel fürs Städtchen. ".encode() * 200 + b"und \xff.")
    main(["index", *args, "--quiet"])
    assert main(["status", *index_args(args)]) == errors.EXIT_OK
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()}
    assert "1 pages of 51 characters, repaired, 1 chunks" in lines["cut.pdf"]
    assert "1 characters replaced" in lines["odd.txt"]


@pytest.mark.parametrize("interval", ["0", "-1", "often", "inf"])
def test_watch_refuses_an_interval_that_is_none(interval: str, docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`watch --interval` takes seconds, more than none; a usage error is exit code 2."""
    with pytest.raises(SystemExit) as stopped:
        main(["watch", str(docs), "--interval", interval])
    assert stopped.value.code == errors.EXIT_REFUSED
    assert "--interval" in capsys.readouterr().err


def test_watch_of_a_missing_folder_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As `index` does: its words, its exit code, and no waiting for a folder that never was."""
    words = ["watch", str(tmp_path / "nowhere"), "--index", str(tmp_path / "index"), "--quiet"]
    assert main(words) == errors.EXIT_REFUSED
    assert capfd.readouterr().err == f"error: source {tmp_path}/nowhere: no such folder; check the path, or mount it\n"
