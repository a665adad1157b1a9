"""The command line: one function per command, data on stdout, everything else on stderr.

Exit codes stand in `errors`. Knows nothing but arguments and how to print results.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_pipeline import errors
from rag_pipeline.config import Config, load_config
from rag_pipeline.records import Limits, ManifestRow, count_states

if TYPE_CHECKING:
    from rich.console import Console


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; every expected error is one line on stderr."""
    args = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return int(args.run(args))
    except errors.RagPipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: stopped; run again to resume", file=sys.stderr)
        return errors.EXIT_STOPPED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.EXIT_OK
    except Exception as error:
        if getattr(args, "verbose", False):
            raise
        reason = " ".join(str(error).split())[:500]
        print(f"error: unexpected {type(error).__name__}: {reason}; --verbose shows where", file=sys.stderr)
        return errors.EXIT_UNEXPECTED


def index_command(args: argparse.Namespace) -> int:
    """`rag-pipeline index`: bring the index in step with the source."""
    from rag_pipeline import pipeline
    from rag_pipeline.progress import print_summary, show_progress
    from rag_pipeline.store.reports import report_json

    console = _stderr()
    with show_progress(console, quiet=args.quiet or args.verbose) as on_progress:
        report = pipeline.index(_config(args), _limits(args), verbose=args.verbose, on_progress=on_progress)
    if args.json:
        print(report_json(report))
    if not args.quiet:
        print_summary(console, report)
    return report.exit_code


def plan_command(args: argparse.Namespace) -> int:
    """`rag-pipeline plan`: say what index would do."""
    from rag_pipeline import pipeline
    from rag_pipeline.progress import plan_paths, print_plan

    plan = pipeline.plan(_config(args), _limits(args), quick=args.quick)
    if args.json:
        work = asdict(plan.work) if plan.work else None
        print(json.dumps({"changes": plan.changes, **plan_paths(plan), "doubt": plan.doubt, "work": work}))
    else:
        print_plan(plan)
    return errors.EXIT_DELETES_WITHHELD if plan.doubt else errors.EXIT_OK


def status_command(args: argparse.Namespace) -> int:
    """`rag-pipeline status`: show what the index knows of every file."""
    from rag_pipeline import maintenance

    rows = maintenance.status(_config(args))
    shown = [row for row in rows if row.state != "indexed" or row.rejects] if args.rejects else rows
    if args.json:
        for row in shown:
            print(json.dumps({**asdict(row), "indexed_at": row.indexed_at.isoformat()}, ensure_ascii=False))
    else:
        _print_status(shown, rows)
    return errors.EXIT_OK


def query_command(args: argparse.Namespace) -> int:
    """`rag-pipeline query`: the nearest chunks, with citations."""
    from rag_pipeline import search

    hits = search.query(_config(args), args.text, k=args.k, where=args.where)
    if args.json:
        for hit in hits:
            print(json.dumps(asdict(hit), ensure_ascii=False))
        return errors.EXIT_OK
    for hit in hits:
        place = ", ".join(part for part in (f"page {hit.page}" if hit.page else "", " > ".join(hit.section)) if part)
        span = f"[{hit.start_char}:{hit.end_char}]"
        print(
            f"{hit.rank}. {_one_line(hit.path)} {span}" + (f" ({place})" if place else "") + f"  score {hit.score:.3f}"
        )
        print("   " + " ".join(hit.text.split())[:400])
    if not hits:
        print("no hits", file=sys.stderr)
    return errors.EXIT_OK


def verify_command(args: argparse.Namespace) -> int:
    """`rag-pipeline verify`: say whether log, manifest and table agree."""
    from rag_pipeline import maintenance

    problems = maintenance.verify(_config(args))
    for problem in problems:
        print(json.dumps(asdict(problem)) if args.json else f"{problem.kind}: {_one_line(problem.what)}")
    if not problems:
        print("log, manifest and table agree", file=sys.stderr)
    inconsistent = any(problem.kind != "leftover" for problem in problems)
    return errors.EXIT_INCONSISTENT if inconsistent else errors.EXIT_OK


def repair_command(args: argparse.Namespace) -> int:
    """`rag-pipeline repair`: make the table anew from the log."""
    from rag_pipeline import maintenance

    done = maintenance.repair(_config(args))
    print(json.dumps({"done": done}) if args.json else "\n".join(map(_one_line, done)))
    return errors.EXIT_OK


def export_command(args: argparse.Namespace) -> int:
    """`rag-pipeline export`: the current rows as clean Parquet."""
    from rag_pipeline import maintenance

    rows = maintenance.export(_config(args), Path(args.to))
    print(json.dumps({"rows": rows}) if args.json else f"{rows} rows written to {args.to}")
    return errors.EXIT_OK


def vacuum_command(args: argparse.Namespace) -> int:
    """`rag-pipeline vacuum`: drop what is superseded."""
    from rag_pipeline import maintenance

    freed = maintenance.vacuum(_config(args))
    text = f"{freed['rows_dropped']} superseded rows dropped, {freed['bytes_freed'] / 1e6:.1f} MB freed"
    print(json.dumps(freed) if args.json else text)
    return errors.EXIT_OK


def rollback_command(args: argparse.Namespace) -> int:
    """`rag-pipeline rollback`: go back to the state after a run."""
    from rag_pipeline import maintenance

    versions = maintenance.rollback(_config(args), args.run_id)
    print(json.dumps(versions) if args.json else f"the index is as it was after run {args.run_id}")
    return errors.EXIT_OK


def check_command(args: argparse.Namespace) -> int:
    """`rag-pipeline check`: validate a config and print its fingerprints."""
    from rag_pipeline.config import prepare_fingerprints
    from rag_pipeline.embedding.model import load_model

    config = load_config(args.file)
    model = load_model(config.recipe.embedding)
    prints = {"embedding": model.fingerprint}
    prints |= {kind: value for kind, value in prepare_fingerprints(config.recipe, model.fingerprint).items() if kind}
    if args.json:
        print(json.dumps({"config": args.file, "model": json.loads(model.to_json()), "fingerprints": prints}))
        return errors.EXIT_OK
    print(f"{args.file}: ok")
    print(f"model      {model.name}, {model.dimension} dimensions, {model.max_tokens} tokens, {model.pooling} pooling")
    for name, value in prints.items():
        print(f"{name:<10} {value}")
    return errors.EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rag-pipeline", description="Keep a vector table in step with a folder of documents, and query it."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        added.add_argument("--json", action="store_true", help="print JSON on stdout")
        return added

    def index_options(added: argparse.ArgumentParser) -> None:
        added.add_argument("--index", metavar="DIR", help="where the index is (default: the config's, else ./index)")
        added.add_argument("-c", "--config", metavar="FILE", help="a YAML config")

    for name, run, text in (
        ("index", index_command, "Bring the index in step with the source."),
        ("plan", plan_command, "Say what `index` would do: no Ray, no GPU, no writes."),
    ):
        added = command(name, run, text)
        added.add_argument("source", nargs="?", metavar="SOURCE", help="a folder (default: the config's)")
        index_options(added)
        added.add_argument("--allow-deletes", action="store_true", help="delete however many files are gone")
        added.add_argument("--max-deletes", type=int, metavar="N", help="keep all rows when more files are gone")
        if name == "plan":
            added.add_argument("--quick", action="store_true", help="compare only, do not prepare files")
        else:
            added.add_argument("--max-embed-tokens", type=int, metavar="N", help="refuse a run that would embed more")
            added.add_argument("--verbose", action="store_true", help="show what Ray and the engine print")
            added.add_argument("--quiet", action="store_true", help="no progress and no summary")

    added = command("status", status_command, "Show every file the index knows: state, reason, counts.")
    index_options(added)
    added.add_argument("--rejects", action="store_true", help="only what is not fully indexed")

    added = command("query", query_command, "Find the chunks nearest to a question, with citations.")
    added.add_argument("text", metavar="TEXT", help="the question")
    index_options(added)
    added.add_argument("-k", type=int, default=5, metavar="N", help="how many hits (default 5)")
    added.add_argument("--where", metavar="SQL", help="filter, such as \"path LIKE 'notes/%%' AND page = 3\"")

    for name, run, text in (
        ("verify", verify_command, "Compare log, manifest and table row by row; exit code 5 if they disagree."),
        ("repair", repair_command, "Make the table anew from the log, without an engine."),
        ("export", export_command, "Write exactly the current rows as clean Parquet."),
        ("vacuum", vacuum_command, "Drop old versions and superseded rows; deleted text leaves the disk."),
        ("rollback", rollback_command, "Go back to the state after a run."),
    ):
        added = command(name, run, text)
        index_options(added)
        if name == "export":
            added.add_argument("--to", required=True, metavar="DIR", help="a new or empty folder")
        if name == "rollback":
            added.add_argument("run_id", metavar="RUN_ID", help="as in runs/<id>.json")

    added = command("check", check_command, "Validate a config and print its fingerprints.")
    added.add_argument("file", metavar="FILE", help="a YAML config")
    return parser


def _config(args: argparse.Namespace) -> Config:
    return load_config(args.config).with_paths(getattr(args, "source", None), args.index)


def _limits(args: argparse.Namespace) -> Limits:
    return Limits(args.allow_deletes, args.max_deletes, getattr(args, "max_embed_tokens", None))


def _print_status(shown: list[ManifestRow], rows: list[ManifestRow]) -> None:
    """One line a file, columns aligned, nothing cut: the lines are made to be searched."""
    states = max((len(row.state) for row in shown), default=0)
    paths = min(60, max((len(row.path) for row in shown), default=0))
    for row in shown:
        pages = "" if row.pages is None else f"{row.pages} pages, "
        rejects = "".join(f", {count} {why}" for why, count in row.rejects.items())
        reason = f"  {row.reason}" if row.reason else ""
        print(f"{row.state:<{states}}  {_one_line(row.path):<{paths}}  {pages}{row.chunks} chunks{rejects}{reason}")
    counts = ", ".join(f"{count} {state}" for state, count in count_states(row.state for row in rows).items())
    print(f"{len(rows)} files: {counts}; {sum(row.chunks for row in rows)} chunks")


def _one_line(path: str) -> str:
    """A path that cannot break a line of output: control characters are shown escaped."""
    return path if path.isprintable() else repr(path)[1:-1]


def _stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
