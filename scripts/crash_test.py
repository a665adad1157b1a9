"""The long form of the crash tests: every named point several times, then kills at random times.

usage: .venv/bin/python scripts/crash_test.py [--rounds N] [--random N] [--seed N] [--shard I/N]

Each kill works on a fresh copy of an index whose source was changed in every way, is followed by the same
command again, and must end in the state of a run that nobody stopped: `verify` clean, the same rows, nothing
left over, only prompts embedded whose vector the log did not hold (tests/test_crash.py says it in code).
Prints a line a kill and a count at the end; exit code 1 if any failed.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from test_crash import (
    INDEX_POINTS,
    MAINTENANCE,
    Scene,
    killed,
    resume,
    test_a_killed_model_switch_is_finished,
    test_a_killed_rollback_is_found_and_mended,
    test_killed_maintenance_can_be_run_again,
    wait_for_children,
)

from rag_pipeline import maintenance, pipeline
from rag_pipeline.config import Config
from rag_pipeline.session import ray_session


def main() -> int:
    """Runs all kills."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="times each named point is hit")
    parser.add_argument("--random", type=int, default=100, help="kills at random times")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shard", default="0/1", help="I/N: every N-th kill, from the I-th on")
    args = parser.parse_args()
    dice = random.Random(args.seed)
    shard, shards = map(int, args.shard.split("/"))
    failures = 0
    config = Config.model_validate({"runtime": {"num_cpus": 2}})
    with ray_session(config, verbose=False), tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder) / "scene")
        scene.make()
        undisturbed = scene.copy_to(Path(folder) / "undisturbed")
        started = time.monotonic()
        pipeline.index(undisturbed.config)
        assert maintenance.verify(undisturbed.config) == []
        usual_s = time.monotonic() - started + 8  # a process of its own starts Ray first
        others: dict[str, Callable[[Path], None]] = {
            point: functools.partial(
                test_killed_maintenance_can_be_run_again, point, words, scene, undisturbed.digest()
            )
            for point, words in MAINTENANCE
        }
        others["during the model switch"] = functools.partial(test_a_killed_model_switch_is_finished, scene)
        others["during rollback"] = functools.partial(
            test_a_killed_rollback_is_found_and_mended, scene, undisturbed.digest()
        )
        points = [*INDEX_POINTS, *others]
        kills = [(point, number) for number in range(1, args.rounds + 1) for point in points]
        for number, (point, count) in enumerate([*kills, *[("at random", 0)] * args.random]):
            whom, after_s = dice.choice(["driver", "group"]), dice.uniform(0.3, usual_s)
            if number % shards != shard:
                continue
            what = f"{point} #{count} {whom}"
            try:
                if point in others:
                    others[point](Path(folder) / f"kill{number}")
                    print(f"ok      {what}", flush=True)
                    continue
                place = scene.copy_to(Path(folder) / f"kill{number}")
                if point == "at random":
                    what = kill_at_random(place, after_s, whom)
                else:
                    killed_or_done(place, point, count, whom)
                report = resume(place, undisturbed.digest())
                print(f"ok      {what}: {report.chunks['embedded']} embedded by the second run", flush=True)
            except AssertionError as error:
                failures += 1
                print(f"FAILED  {what}: {str(error)[:500]}", flush=True)
    print(f"{len(kills)} kills at {len(points)} points, {args.random} at random times: {failures} failed")
    return int(failures > 0)


def killed_or_done(place: Scene, point: str, count: int, whom: str) -> None:
    """Kills at the count-th arrival; a point that is not reached so often is hit the first time."""
    try:
        killed(place, point, count, whom, "index")
    except AssertionError:
        if count == 1:
            raise
        # The run ended before: its state is checked all the same.


def kill_at_random(place: Scene, after_s: float, whom: str) -> str:
    """Kills the command after so many seconds, wherever it is then."""
    command = [sys.executable, "-m", "rag_pipeline.cli", *place.command("index")]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        time.sleep(after_s)
        ended = process.poll() is not None
        if not ended:
            os.killpg(process.pid, signal.SIGKILL) if whom == "group" else process.kill()
        process.wait()
    wait_for_children(process.pid)
    return f"at random, {after_s:.1f} s, {whom}{', had ended' if ended else ''}"


if __name__ == "__main__":
    sys.exit(main())
