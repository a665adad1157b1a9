"""What one generated document is: a name, how its bytes are made, and what a reader should get out of it.

Knows nothing of single documents, nor of what the package under test does with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Generated:
    """One document with what a person would call right.

    A passage with a line end must be in the text as it stands; in any other one each run of blanks
    equals one blank, so that it may be wrapped over lines.

    Attributes:
        name: File name; its extension is what a reader is told.
        make: Makes the same bytes each time, but for encryption keys.
        states: States that are right, mostly one.
        media_type: What the bytes are, where the name lies or it matters.
        title: The document's title, where it has one.
        passages: Found in this order.
        absent: Not found.
        pages: Passages and the page each begins on.
        sections: Passages and the headings above each, outermost first.
        kinds: Passages and the kind of block each is in.
    """

    name: str
    make: Callable[[], bytes]
    states: tuple[str, ...] = ("indexed",)
    media_type: str | None = None
    title: str | None = None
    passages: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    pages: Mapping[str, int] = field(default_factory=dict)
    sections: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
