"""When engines were at work: how long at least one was, from when to when. Knows nothing of what they do."""

from __future__ import annotations


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

    @property
    def idle_share(self) -> float:
        """The share of the time between the first moment and the last that is not covered; 0 to 1."""
        first, last = self.between
        return 1 - self.seconds / (last - first) if last > first else 0.0
