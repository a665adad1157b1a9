"""When engines were at work: for how long, from when to when, and how idle. Knows nothing of what they do."""

from __future__ import annotations

from collections import defaultdict


class BusyTime:
    """Wall time covered by at least one interval, kept as the few intervals that do not touch."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []

    def add(self, start: float, end: float) -> None:
        """Adds an interval, in seconds since any fixed moment."""
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
        return min((start for start, _ in self._spans), default=0.0), max((end for _, end in self._spans), default=0.0)

    @property
    def seconds(self) -> float:
        """The time covered."""
        return sum(end - start for start, end in self._spans)


class EngineTimes:
    """The batches of several engines; `any` is the time in which at least one was at work."""

    def __init__(self) -> None:
        self.any = BusyTime()
        self._each: defaultdict[str, BusyTime] = defaultdict(BusyTime)

    def add(self, engine: str, start: float, end: float) -> None:
        """Adds a batch; batches that one engine has in hand at once count once."""
        self.any.add(start, end)
        self._each[engine].add(start, end)

    @property
    def idle_share(self) -> float:
        """The share of the engines' time in which they had no batch, each from its first to the end of all; 0 to 1."""
        end = self.any.between[1]
        there = sum(end - one.between[0] for one in self._each.values())
        return 1 - sum(one.seconds for one in self._each.values()) / there if there else 0.0
