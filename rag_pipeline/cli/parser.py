"""The arguments of every command. Knows nothing of what the commands do."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from rag_pipeline.cli import index_commands as look_after
from rag_pipeline.cli import search_commands as answer
from rag_pipeline.cli.watch_command import watch_command

_Command = Callable[[argparse.Namespace], int]


def make_parser() -> argparse.ArgumentParser:
    """The parser; every command leaves its function in `run`."""
    parser = argparse.ArgumentParser(
        prog="rag-pipeline", description="Keep a vector table in step with a folder of documents, and query it."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_indexing(commands)
    _add_answering(commands)
    _add_looking_after(commands)
    return parser


def _command(commands: Any, name: str, run: _Command, text: str) -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    added.set_defaults(run=run)
    added.add_argument("--json", action="store_true", help="print JSON on stdout")
    return added


def _on_index(commands: Any, name: str, run: _Command, text: str) -> argparse.ArgumentParser:
    added = _command(commands, name, run, text)
    added.add_argument("--index", metavar="DIR", help="a folder or s3:// prefix (default: the config's, else ./index)")
    added.add_argument("-c", "--config", metavar="FILE", help="a YAML config")
    return added


def _add_indexing(commands: Any) -> None:
    index = _on_index(commands, "index", look_after.index_command, "Bring the index in step with the source.")
    text = "Say what `index` would do: no Ray, no GPU, no writes."
    plan = _on_index(commands, "plan", look_after.plan_command, text)
    text = "Run `index` now and after every change of the source, until it is stopped."
    watch = _on_index(commands, "watch", watch_command, text)
    for added in (index, plan, watch):
        added.add_argument("source", nargs="?", metavar="SOURCE", help="a folder (default: the config's)")
        added.add_argument("--allow-deletes", action="store_true", help="delete however many files are gone")
        added.add_argument("--max-deletes", type=int, metavar="N", help="keep all rows when more files are gone")
    plan.add_argument("--quick", action="store_true", help="compare only, do not prepare files")
    for added in (index, watch):
        added.add_argument("--max-embed-tokens", type=int, metavar="N", help="refuse a run that would embed more")
        added.add_argument("--verbose", action="store_true", help="show what Ray and the engine print")
        added.add_argument("--quiet", action="store_true", help="no progress and no summary")
    text = "list the source so often (default: 60 for a URL; a folder tells by itself, but not on a network mount)"
    watch.add_argument("--interval", type=_positive, metavar="SECONDS", help=text)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


def _add_answering(commands: Any) -> None:
    text = "Find the chunks that answer a question, with citations."
    added = _on_index(commands, "query", answer.query_command, text)
    added.add_argument("text", metavar="TEXT", help="the question")
    _search_options(added)

    text = "Show a chunk in its place: a PDF's page as a PNG, other text right here."
    added = _on_index(commands, "show", answer.show_command, text)
    added.add_argument("chunk_id", metavar="CHUNK_ID", help="as `query --json` prints it")
    added.add_argument("--to", metavar="FILE", help="where the PNG goes (default: CHUNK_ID.png)")

    text = "Score an index on labelled questions; exit code 8 if it became worse."
    added = _on_index(commands, "eval", answer.eval_command, text)
    added.add_argument("questions", metavar="QUERIES", help="JSON lines with `query` and `relevant`")
    added.add_argument("--mode", choices=("all", "hybrid", "vector", "text"), default="all", help="default: all three")
    added.add_argument("-k", type=int, default=10, metavar="N", help="how many answers count (default 10)")
    added.add_argument("--save", metavar="FILE", help="keep the scores, for a later --baseline")
    added.add_argument("--baseline", metavar="PATH", help="compare with saved scores, or with another index")
    added.add_argument("--tolerance", type=float, default=0.01, metavar="X", help="how much may be lost (default 0.01)")

    text = "Answer over HTTP, with a web page; only to this machine by default."
    added = _on_index(commands, "serve", answer.serve_command, text)
    added.add_argument("--host", default="127.0.0.1", help="other than loopback only with RAG_PIPELINE_TOKEN set")
    added.add_argument("--port", type=int, default=8000, metavar="N", help="default 8000")

    text = "Offer search, fetch and list to an agent: MCP on stdin and stdout."
    _on_index(commands, "mcp", answer.mcp_command, text)


def _add_looking_after(commands: Any) -> None:
    text = "Show every file the index knows: state, reason, counts."
    status = _on_index(commands, "status", look_after.status_command, text)
    status.add_argument("--rejects", action="store_true", help="only what is not fully indexed")

    text = "Compare log, manifest and table row by row; exit code 5 if they disagree."
    _on_index(commands, "verify", look_after.verify_command, text)
    text = "Make the table anew from the log, without an engine."
    _on_index(commands, "repair", look_after.repair_command, text)
    text = "Write exactly the current rows as clean Parquet."
    export = _on_index(commands, "export", look_after.export_command, text)
    export.add_argument("--to", required=True, metavar="DIR", help="a new or empty folder")
    text = "Drop old versions and superseded rows; deleted text leaves the disk."
    _on_index(commands, "vacuum", look_after.vacuum_command, text)
    text = "Go back to the state after a run."
    rollback = _on_index(commands, "rollback", look_after.rollback_command, text)
    rollback.add_argument("run_id", metavar="RUN_ID", help="as in runs/<id>.json")

    check = _command(commands, "check", look_after.check_command, "Validate a config and print its fingerprints.")
    check.add_argument("file", metavar="FILE", help="a YAML config")


def _search_options(added: argparse.ArgumentParser) -> None:
    added.add_argument("-k", type=int, default=5, metavar="N", help="how many hits (default 5)")
    modes = ("hybrid", "vector", "text")
    added.add_argument(
        "--mode", choices=modes, default="hybrid", help="by meaning (vector), by words (text), or both (default)"
    )
    added.add_argument(
        "--path",
        action="append",
        default=[],
        metavar="GLOB",
        help="only files such as 'notes/' or '*.pdf'; '!x' leaves out",
    )
    added.add_argument("--page", metavar="N[-M]", help="only these pages")
    added.add_argument("--section", default="", metavar="WORDS", help="only below headings that hold these words")
    added.add_argument("--since", metavar="DATE", help="only files modified from then on, such as 2026-01-31")
    added.add_argument("--until", metavar="DATE", help="only files modified before then")
    added.add_argument("--where", metavar="SQL", help="filter, such as \"path LIKE 'notes/%%' AND page = 3\"")
    added.add_argument("--group", action="store_true", help="at most one hit a document")
    added.add_argument("--context", type=int, default=0, metavar="N", help="show N chunks before and after each hit")
    added.add_argument("--rerank", metavar="MODEL", help="order the best by a cross-encoder, a hub name or a folder")
