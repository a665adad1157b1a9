"""The command `watch`: every run is an `index` of its own, in a process of its own.

So engines and their memory are given back between runs, a run that dies takes nothing with it, and what a run prints
and returns is what `index` does. Knows nothing of when to run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from rag_pipeline import errors
from rag_pipeline.cli.arguments import config_of

_VALUES = ("index", "config", "max_deletes", "max_embed_tokens")
_FLAGS = ("json", "quiet", "verbose", "allow_deletes")


def watch_command(args: argparse.Namespace) -> int:
    """`rag-pipeline watch`: index now, and again after every change, until it is stopped."""
    from rag_pipeline.watch import watch

    index = _Index(args)
    source = config_of(args).source
    try:
        return watch(source, index.run, args.interval, lambda text: print(text, file=sys.stderr, flush=True))
    except KeyboardInterrupt:
        return index.stopped_with


class _Index:
    """Runs of `rag-pipeline index`, one at a time."""

    def __init__(self, args: argparse.Namespace) -> None:
        values = ((name, getattr(args, name)) for name in _VALUES)
        options = [f"--{name.replace('_', '-')}={value}" for name, value in values if value is not None]
        options += [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(args, name)]
        source = ["--", args.source] if args.source else []
        self._command = [sys.executable, "-m", "rag_pipeline.cli", "index", *options, *source]
        self.stopped_with = errors.EXIT_OK

    def run(self) -> int:
        """One run; an interrupt is handed on to it, it ends as `index` does, and then the interrupt goes on."""
        interrupted = False
        # In a session of its own, so that Ctrl-C reaches it once: through here.
        with subprocess.Popen(self._command, start_new_session=True) as process:
            while process.returncode is None:
                try:
                    process.wait()
                except KeyboardInterrupt:
                    interrupted = True
                    process.terminate()
        if interrupted:
            if process.returncode < 0:  # it died before it could say so
                raise errors.StoppedError("stopped; run again to resume")
            self.stopped_with = process.returncode
            raise KeyboardInterrupt
        return process.returncode
