"""The commands that answer: query, show, eval, serve, mcp. Knows nothing of how answers are found."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rag_pipeline import errors
from rag_pipeline.cli.arguments import config_of, filters_of
from rag_pipeline.cli.printing import print_hit, print_passage


def query_command(args: argparse.Namespace) -> int:
    """`rag-pipeline query`: the chunks that answer a question best, with citations."""
    from rag_pipeline.search import Searcher

    searcher = Searcher(config_of(args))
    hits = searcher.query(
        args.text,
        k=args.k,
        mode=args.mode,
        filters=filters_of(args),
        group=args.group,
        neighbours=args.context,
        rerank=args.rerank,
    )
    if args.mode != "vector" and not searcher.table().has_text_index:
        print(
            "note: this index has no text index yet, words are matched as they are; `index` makes it", file=sys.stderr
        )
    for hit in hits:
        if args.json:
            print(json.dumps(asdict(hit), ensure_ascii=False))
        else:
            print_hit(hit)
    if not hits and not args.json:
        print("no hits", file=sys.stderr)
    return errors.EXIT_OK


def show_command(args: argparse.Namespace) -> int:
    """`rag-pipeline show`: the page a chunk is on, or its text in place."""
    from rag_pipeline.search import Searcher
    from rag_pipeline.search.page_image import draw_page

    config = config_of(args)
    searcher = Searcher(config)
    hit = searcher.chunk(args.chunk_id, neighbours=1)
    shown: dict[str, Any] = asdict(hit)
    if hit.page and searcher.files.rows()[hit.path].media_type == "pdf":
        file = Path(args.to or f"{hit.chunk_id}.png")
        password = config.recipe.parse.pdf.password
        png = draw_page(searcher.files.read(hit.path), hit.page, hit.text, password)
        try:
            file.write_bytes(png)
        except OSError as error:
            raise errors.ConfigError(f"show --to {file}: cannot be written: {error.strerror}") from None
        shown["image"] = str(file)
    if args.json:
        print(json.dumps(shown, ensure_ascii=False))
        return errors.EXIT_OK
    print_passage(hit)
    if "image" in shown:
        print(shown["image"])
    return errors.EXIT_OK


def eval_command(args: argparse.Namespace) -> int:
    """`rag-pipeline eval`: score an index on labelled questions, alone or against another."""
    from rag_pipeline import evaluate
    from rag_pipeline.search import MODES, Searcher

    config = config_of(args)
    questions = evaluate.load_questions(Path(args.questions))
    modes = MODES if args.mode == "all" else (args.mode,)
    scores = evaluate.evaluate(Searcher(config), questions, modes, args.k)
    for one in scores:
        measures = "  ".join(f"{name} {value:.4f}" for name, value in one.measures.items())
        line = f"{one.mode:<7} {measures}  p50 {one.p50_ms:.1f} ms  p95 {one.p95_ms:.1f} ms"
        print(json.dumps(asdict(one)) if args.json else line)
    if args.save:
        evaluate.save_scores(Path(args.save), scores)
    if not args.baseline:
        return errors.EXIT_OK
    if Path(args.baseline).is_dir():
        other = Searcher(config.with_paths(index=args.baseline))
        baseline = evaluate.evaluate(other, questions, modes, args.k)
    else:
        baseline = evaluate.load_scores(Path(args.baseline))
    regressions = evaluate.find_regressions(scores, baseline, args.tolerance)
    for regression in regressions:
        print(f"regressed: {regression}", file=sys.stderr)
    return errors.EXIT_REGRESSED if regressions else errors.EXIT_OK


def serve_command(args: argparse.Namespace) -> int:
    """`rag-pipeline serve`: the HTTP API and the web page, until it is stopped."""
    import uvicorn

    from rag_pipeline.server.app import create_app
    from rag_pipeline.server.guard import check_binding

    token = os.environ.get("RAG_PIPELINE_TOKEN") or None
    check_binding(args.host, token)
    app = create_app(config_of(args), token)
    print(f"serving http://{args.host}:{args.port}", file=sys.stderr)
    try:
        uvicorn.run(app, host=args.host, port=args.port, log_level="error", access_log=False, timeout_keep_alive=75)
    except KeyboardInterrupt:  # how a server is meant to end
        pass
    except SystemExit:
        where = f"{args.host}:{args.port}"
        raise errors.ConfigError(f"serve: cannot listen on {where}; choose another --port or --host") from None
    return errors.EXIT_OK


def mcp_command(args: argparse.Namespace) -> int:
    """`rag-pipeline mcp`: the index as tools of an agent, on stdin and stdout."""
    from rag_pipeline.server.mcp import create_server

    create_server(config_of(args)).run("stdio")
    return errors.EXIT_OK
