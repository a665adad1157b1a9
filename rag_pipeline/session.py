"""One Ray session: started quietly for a run and taken down with it, or the user's own, left alone.

Knows nothing of what runs in it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from rag_pipeline import errors
from rag_pipeline.config import Config
from rag_pipeline.errors import EmbeddingError, RagPipelineError


@contextlib.contextmanager
def ray_session(config: Config, verbose: bool) -> Iterator[None]:
    """A private local Ray, or the cluster the config names; an already running one is used and left alone.

    Raises:
        EmbeddingError: Ray cannot start, or something in it failed for good; our own errors come as they are.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if config.runtime.ray_address:  # a node that falls silent would else be waited for seven minutes
        os.environ.setdefault("RAY_grpc_client_keepalive_time_ms", "30000")
        os.environ.setdefault("RAY_grpc_client_keepalive_timeout_ms", "20000")
    else:
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # a private cluster that lives as long as the run
    if not verbose:
        _hush()
    import ray

    found = ray.is_initialized()
    if not found:
        _start(config, verbose)
    ray.data.DataContext.get_current().enable_progress_bars = verbose
    try:
        yield
    except ray.exceptions.RayError as error:
        raise _translated(error) from error
    finally:
        if not found:
            ray.shutdown()


def watched(blocks: Iterable[Any], stall_timeout_s: float) -> Iterator[Any]:
    """Yields what a Dataset brings, and gives up on one that brings nothing for too long.

    Raises:
        EmbeddingError: Nothing came; what is committed stays.
    """
    arrived: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=1)
    done = threading.Event()

    def hand(kind: str, value: Any) -> None:
        while not done.is_set():
            with contextlib.suppress(queue.Full):
                return arrived.put((kind, value), timeout=1)

    def consume() -> None:
        try:
            for block in blocks:
                hand("block", block)
                if done.is_set():
                    return
            hand("end", None)
        except BaseException as error:  # it is raised where somebody listens
            hand("error", error)

    threading.Thread(target=consume, daemon=True, name="receipts").start()
    try:
        while True:
            try:
                kind, value = arrived.get(timeout=stall_timeout_s)
            except queue.Empty:
                raise EmbeddingError(
                    f"the run stopped: nothing was finished for {stall_timeout_s:g} s (runtime.stall_timeout_s);"
                    " look at the engine with --verbose, then run again to resume"
                ) from None
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
    finally:
        done.set()


def _start(config: Config, verbose: bool) -> None:
    import ray

    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        with contextlib.nullcontext() if verbose else _silent_stderr():
            ray.init(
                address=config.runtime.ray_address or "local",
                num_cpus=None if config.runtime.ray_address else config.runtime.num_cpus,
                include_dashboard=None if config.runtime.ray_address else False,
                log_to_driver=verbose,
                logging_level="info" if verbose else "error",
            )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise EmbeddingError(f"Ray cannot start: {' '.join(str(error).split())[:300]}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_terminate)  # Ray's own handler would exit without committing


def _hush() -> None:
    """Keeps Ray, vLLM and what they import from printing in this process; --verbose leaves them be."""
    os.environ.setdefault("RAY_DATA_LOG_LEVEL", "CRITICAL")  # what fails is raised here too; the rest is of its end
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    warnings.filterwarnings("ignore", message="lancedb fork support")
    for name in ("ray", "ray._private.worker", "ray.llm", "vllm"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("ray.llm").addHandler(logging.NullHandler())  # else it gives each of its loggers one that prints


def _translated(error: BaseException) -> RagPipelineError:
    """Our own error where one was raised in a worker; else what Ray tells of the first cause, without its traces.

    Ray wraps what a task raised, and a wrapper loses its cause on the way here: its text still has it.
    """
    cause: BaseException | None = error
    while cause is not None:
        for found in (cause, getattr(cause, "cause", None)):
            if isinstance(found, RagPipelineError) and type(found).__module__ == RagPipelineError.__module__:
                return found
        cause = cause.__cause__
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    for name, message in reversed(re.findall(r"^rag_pipeline\.errors\.(\w+): (.*)", text, re.MULTILINE)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, RagPipelineError) and kind is not errors.DocumentError:
            return kind(message)
    lines = [line for line in text.splitlines() if not line.startswith("ray.exceptions.UserCodeException")]
    named = [number for number, line in enumerate(lines) if re.match(r"[\w.]+(Error|Exception|Exit)\b", line)]
    reason = " ".join(" ".join(lines[named[-1] :]).split()) if named else (text.strip() or type(error).__name__)
    return EmbeddingError(f"the run stopped: {reason[:500]}; run again to resume")


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Drops what native code prints to stderr meanwhile: Ray announces there that it was told to be quiet."""
    kept = os.dup(2)
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(sink)
