"""Tables as Markdown rows, whatever file they come from. Knows nothing of how a file holds its cells."""

from __future__ import annotations

from dataclasses import dataclass, field

from rag_pipeline.records import Block

# A table with more text in a cell lays out a page; as rows it would be unreadable.
_MAX_CELL_CHARS = 1_000


@dataclass(slots=True)
class Table:
    """A table under way: rows of cells, each the blocks it holds."""

    rows: list[list[list[Block]]] = field(default_factory=list)
    layout: bool = False

    def to_blocks(self) -> list[Block]:
        """One block of Markdown rows; the cells' own blocks where the table only lays out a page."""
        cells = [cell for row in self.rows for cell in row]
        if self._is_layout(cells):
            return [block for cell in cells for block in cell]
        text = [[" ".join(b.text for b in cell) for cell in row] for row in self.rows]
        return [Block(table_text(text), "table")] if any(cell for row in text for cell in row) else []

    def _is_layout(self, cells: list[list[Block]]) -> bool:
        return (
            self.layout
            or all(len(row) < 2 for row in self.rows)
            or any(block.kind in ("heading", "table") for cell in cells for block in cell)
            or any(sum(len(block.text) for block in cell) > _MAX_CELL_CHARS for cell in cells)
        )


def table_text(rows: list[list[str]]) -> str:
    """Cells as a Markdown table, its first row as the head; rows without any text are left out."""
    lines = []
    for row in rows:
        cells = [" ".join(cell.split()).replace("|", "\\|") for cell in row]
        if any(cells):
            lines.append("| " + " | ".join(cells) + " |")
            if len(lines) == 1:
                lines.append("|" + "---|" * len(cells))
    return "\n".join(lines)
