"""What arguments come to: a config, limits, filters. Knows nothing of commands."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rag_pipeline.config import Config, load_config
from rag_pipeline.records import Limits

if TYPE_CHECKING:
    from rag_pipeline.search import Filters


def config_of(args: argparse.Namespace) -> Config:
    """The config file's settings, with SOURCE and --index put in."""
    return load_config(args.config).with_paths(getattr(args, "source", None), args.index)


def limits_of(args: argparse.Namespace) -> Limits:
    """How far a run may go."""
    return Limits(args.allow_deletes, args.max_deletes, getattr(args, "max_embed_tokens", None))


def filters_of(args: argparse.Namespace) -> Filters:
    """Which rows may answer."""
    from rag_pipeline.search.filters import Filters, parse_date, parse_pages

    return Filters(
        paths=tuple(args.path),
        pages=parse_pages(args.page) if args.page else None,
        section=args.section,
        since=parse_date(args.since) if args.since else None,
        until=parse_date(args.until) if args.until else None,
        where=args.where,
    )
