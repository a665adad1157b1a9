"""The commands that make and look after an index. Knows nothing of how any of it is done."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rag_pipeline import errors
from rag_pipeline.cli.arguments import config_of, limits_of
from rag_pipeline.cli.printing import one_line, print_status, stderr_console
from rag_pipeline.config import load_config


def index_command(args: argparse.Namespace) -> int:
    """`rag-pipeline index`: bring the index in step with the source."""
    from rag_pipeline import pipeline
    from rag_pipeline.progress import print_summary, show_progress
    from rag_pipeline.store.reports import report_json

    console = stderr_console()
    quiet = args.quiet or args.verbose
    # Ray prints what it has to say of lost nodes and killed workers on stdout, whatever it is told.
    with contextlib.redirect_stdout(sys.stderr), show_progress(console, quiet) as on_progress:
        report = pipeline.index(config_of(args), limits_of(args), verbose=args.verbose, on_progress=on_progress)
    if args.json:
        print(report_json(report))
    if not args.quiet:
        print_summary(console, report)
    return report.exit_code


def plan_command(args: argparse.Namespace) -> int:
    """`rag-pipeline plan`: say what index would do."""
    from rag_pipeline import pipeline
    from rag_pipeline.progress import plan_paths, print_plan

    plan = pipeline.plan(config_of(args), limits_of(args), quick=args.quick)
    if args.json:
        work = asdict(plan.work) if plan.work else None
        print(json.dumps({"changes": plan.changes, **plan_paths(plan), "doubt": plan.doubt, "work": work}))
    else:
        print_plan(plan)
    return errors.EXIT_DELETES_WITHHELD if plan.doubt else errors.EXIT_OK


def status_command(args: argparse.Namespace) -> int:
    """`rag-pipeline status`: show what the index knows of every file."""
    from rag_pipeline import maintenance

    rows = maintenance.status(config_of(args))
    shown = [row for row in rows if row.state != "indexed" or row.rejects] if args.rejects else rows
    if args.json:
        for row in shown:
            print(json.dumps({**asdict(row), "indexed_at": row.indexed_at.isoformat()}, ensure_ascii=False))
    else:
        print_status(shown, rows)
    return errors.EXIT_OK


def verify_command(args: argparse.Namespace) -> int:
    """`rag-pipeline verify`: say whether log, manifest and table agree."""
    from rag_pipeline import maintenance

    problems = maintenance.verify(config_of(args))
    for problem in problems:
        print(json.dumps(asdict(problem)) if args.json else f"{problem.kind}: {one_line(problem.what)}")
    if not problems:
        print("log, manifest and table agree", file=sys.stderr)
    inconsistent = any(problem.kind != "leftover" for problem in problems)
    return errors.EXIT_INCONSISTENT if inconsistent else errors.EXIT_OK


def repair_command(args: argparse.Namespace) -> int:
    """`rag-pipeline repair`: make the table anew from the log."""
    from rag_pipeline import maintenance

    done = maintenance.repair(config_of(args))
    print(json.dumps({"done": done}) if args.json else "\n".join(map(one_line, done)))
    return errors.EXIT_OK


def export_command(args: argparse.Namespace) -> int:
    """`rag-pipeline export`: the current rows as clean Parquet."""
    from rag_pipeline import maintenance

    rows = maintenance.export(config_of(args), Path(args.to))
    print(json.dumps({"rows": rows}) if args.json else f"{rows} rows written to {args.to}")
    return errors.EXIT_OK


def vacuum_command(args: argparse.Namespace) -> int:
    """`rag-pipeline vacuum`: drop what is superseded."""
    from rag_pipeline import maintenance

    freed = maintenance.vacuum(config_of(args))
    text = f"{freed['rows_dropped']} superseded rows dropped, {freed['bytes_freed'] / 1e6:.1f} MB freed"
    print(json.dumps(freed) if args.json else text)
    return errors.EXIT_OK


def rollback_command(args: argparse.Namespace) -> int:
    """`rag-pipeline rollback`: go back to the state after a run."""
    from rag_pipeline import maintenance

    versions = maintenance.rollback(config_of(args), args.run_id)
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
