"""When engines were at work: for how long at least one, and how much of their time they waited.

Knows nothing of what they do.
"""

from __future__ import annotations

from array import array
from itertools import accumulate


class BusyTime:
    """Intervals of work by any number of engines, in seconds since any fixed moment."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []  # what they cover together: the few that do not touch
        self._starts, self._ends = array("d"), array("d")

    def add(self, start: float, end: float) -> None:
        """Adds one engine's work on one block."""
        self._starts.append(start)
        self._ends.append(end)
        apart = []
        for span in self._spans:
            if span[1] < start or end < span[0]:
                apart.append(span)
            else:
                start, end = min(start, span[0]), max(end, span[1])
        self._spans = [*apart, (start, end)]

    @property
    def between(self) -> tuple[float, float]:
        """The first moment covered and the last; zeros where there is none."""
        return min(self._starts, default=0.0), max(self._ends, default=0.0)

    @property
    def seconds(self) -> float:
        """The time covered by at least one interval."""
        return sum(end - start for start, end in self._spans)

    @property
    def engines(self) -> int:
        """The most that were at work at once."""
        steps = sorted([*((end, -1) for end in self._ends), *((start, 1) for start in self._starts)])
        return max(accumulate(step for _, step in steps), default=0)

    @property
    def idle_share(self) -> float:
        """The share of all engines' time, between the first moment and the last, in which they waited; 0 to 1."""
        first, last = self.between
        if last <= first:
            return 0.0
        return max(0.0, 1 - (sum(self._ends) - sum(self._starts)) / (self.engines * (last - first)))
