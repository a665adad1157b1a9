"""How results look on a terminal: citations, passages, states; nothing in them can steer it.

Knows nothing of commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag_pipeline.records import Hit, ManifestRow, count_states

if TYPE_CHECKING:
    from rich.console import Console


def print_hit(hit: Hit) -> None:
    """The citation on one line, then the passage."""
    parts = ", ".join(
        f"{mode} {hit.scores[mode]:.3f} #{hit.scores[f'{mode}_rank']:g}"
        for mode in ("vector", "text")
        if mode in hit.scores and len(hit.scores) > 2
    )
    print(f"{hit.rank}. {_citation(hit)}  score {hit.score:.4g}" + (f" ({parts})" if parts else ""))
    for text in (hit.before, hit.text, hit.after):
        if text.strip():
            print("   " + " ".join(_printable(text).split())[:400])


def print_passage(hit: Hit) -> None:
    """The citation, then the passage between its neighbours, which are dim where the terminal can show it."""
    from rich.console import Console
    from rich.text import Text

    text = Text.assemble(
        (_printable(hit.before + "\n" if hit.before else ""), "dim"),
        (_printable(hit.text), "bold"),
        (_printable("\n" + hit.after if hit.after else ""), "dim"),
    )
    print(_citation(hit))
    Console(soft_wrap=True, highlight=False).print(text)


def _citation(hit: Hit) -> str:
    """Path, span, page and section on one line, and whether they can still be trusted."""
    place = ", ".join(part for part in (f"page {hit.page}" if hit.page else "", " > ".join(hit.section)) if part)
    return (
        f"{one_line(hit.path)} [{hit.start_char}:{hit.end_char}]"
        + (f" ({one_line(place)})" if place else "")
        + ("  changed since it was indexed" if hit.stale else "")
    )


def print_status(shown: list[ManifestRow], rows: list[ManifestRow]) -> None:
    """One line a file, columns aligned, nothing cut: the lines are made to be searched."""
    states = max((len(row.state) for row in shown), default=0)
    paths = min(60, max((len(row.path) for row in shown), default=0))
    for row in shown:
        rejects = "".join(f", {count} {why}" for why, count in row.rejects.items())
        reason = f"  {row.reason}" if row.reason else ""
        facts = f"{_quality(row)}{row.chunks} chunks{rejects}{reason}"
        print(f"{row.state:<{states}}  {one_line(row.path):<{paths}}  {facts}")
    counts = ", ".join(f"{count} {state}" for state, count in count_states(row.state for row in rows).items())
    print(f"{len(rows)} files: {counts}; {sum(row.chunks for row in rows)} chunks")


def _quality(row: ManifestRow) -> str:
    """How well a file could be read: pages and characters on each, and what should make one look twice."""
    pages = f"{row.pages} pages of {row.characters // row.pages} characters, " if row.pages else ""
    repaired = "repaired, " if row.repaired else ""
    recognized = f"{row.ocr_pages} by OCR, " if row.ocr_pages else ""
    replaced = f"{row.replaced_chars} characters replaced, " if row.replaced_chars else ""
    return pages + repaired + recognized + replaced


def one_line(path: str) -> str:
    """A path that cannot break a line of output: control characters are shown escaped."""
    return path if path.isprintable() else repr(path)[1:-1]


def _printable(text: str) -> str:
    """Document text without control characters, which could steer a terminal; lines stay."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


def stderr_console() -> Console:
    """A console on stderr that wraps no line."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True)
