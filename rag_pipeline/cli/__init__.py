"""The command line: one function per command, data on stdout, everything else on stderr.

`parser` knows the arguments, `index_commands` and `search_commands` carry them out, `printing` says how results
look. Exit codes stand in `errors`. Knows nothing but arguments and how to print results.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from rag_pipeline import errors
from rag_pipeline.cli.parser import make_parser

_EXTRAS = {
    **dict.fromkeys(("fastapi", "uvicorn", "prometheus_client", "mcp", "mcp_types"), "serve"),
    "ir_measures": "eval",
    **dict.fromkeys(("boto3", "botocore"), "s3"),
    **dict.fromkeys(("fsspec", "aiohttp", "tenacity"), "remote"),
    "watchfiles": "watch",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; every expected error is one line on stderr."""
    args = make_parser().parse_args(argv)
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
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(str(error.name).split(".")[0], "cpu")
        print(f"error: {error.name} is not installed; pip install 'rag-pipeline[{extra}]'", file=sys.stderr)
        return errors.EXIT_REFUSED
    except Exception as error:
        if getattr(args, "verbose", False):
            raise
        reason = " ".join(str(error).split())[:500]
        hint = "; --verbose shows where" if hasattr(args, "verbose") else ""
        print(f"error: unexpected {type(error).__name__}: {reason}{hint}", file=sys.stderr)
        return errors.EXIT_UNEXPECTED


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
