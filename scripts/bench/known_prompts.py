"""What looking up known prompts costs: N synthetic keys, memory and time to build, to look up, to add.

usage: python scripts/bench/known_prompts.py [N] [--batch ROWS]

Fills the map that `store.vectors` keeps (16 bytes a prompt) in batches as parts of a log would, then looks up
half known, half unknown keys in blocks of the pipeline's size.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from rag_pipeline.store.vectors import MISSING, KeyMap


def main() -> None:
    """Builds, looks up, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompts", type=int, nargs="?", default=10_000_000)
    parser.add_argument("--batch", type=int, default=4096)
    args = parser.parse_args()
    dice = np.random.default_rng(0)
    known = KeyMap()
    before_mib = _peak_mib()
    started = time.perf_counter()
    sample = np.zeros(0, dtype=np.uint64)
    for first in range(0, args.prompts, args.batch):
        keys = dice.integers(0, 2**63, min(args.batch, args.prompts - first), dtype=np.uint64)
        known.add(keys, np.arange(first, first + len(keys), dtype=np.uint64))
        if first % (args.batch * 64) == 0:
            sample = np.concatenate([sample, keys[:64]])
    built_s = time.perf_counter() - started
    print(f"{len(known)} prompts known: {built_s:.1f} s, peak memory {_peak_mib():.0f} MiB ({before_mib:.0f} before)")
    block = np.concatenate([sample[:512], dice.integers(2**63, 2**64 - 1, 512, dtype=np.uint64)])
    started = time.perf_counter()
    rounds = 1000
    for _ in range(rounds):
        found = known.find(block)
    each_ms = (time.perf_counter() - started) / rounds * 1000
    hits = int((found != MISSING).sum())
    print(
        f"a block of {len(block)} prompts: {each_ms:.2f} ms, {hits} known, {len(block) / each_ms * 1000:.0f} prompts/s"
    )


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
