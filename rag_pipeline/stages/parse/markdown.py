"""Markdown by a CommonMark parser's line positions: blocks are the source's own lines, never re-rendered.

Knows nothing of other formats, but falls back to plain paragraphs where nesting is too deep to follow.
"""

from __future__ import annotations

import functools
import itertools
import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

from rag_pipeline.config import MarkdownConfig
from rag_pipeline.records import Block, Document
from rag_pipeline.stages.parse.front_matter import split_front_matter
from rag_pipeline.stages.parse.text import paragraphs

_KINDS = {
    "heading_open": "heading",
    "fence": "code",
    "code_block": "code",
    "table_open": "table",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
}
_CODE_OR_COMMENT = re.compile(r"(?P<ticks>(?<!`)`+(?!`)).*?(?<!`)(?P=ticks)(?!`)|<!--.*?-->", re.DOTALL)
_MAX_TITLE_CHARS = 1_000


@functools.lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    """Finds blocks only: what is inside a line is the source's own, and costs time to take apart."""
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.disable(["inline", "text_join"])
    return parser


def parse_markdown(path: str, text: str, settings: MarkdownConfig) -> Document:
    """Cuts Markdown into its top-level blocks; front matter gives title and metadata, HTML comments are left out."""
    metadata: dict[str, str] = {}
    if settings.front_matter:
        metadata, text = split_front_matter(text)
    try:
        tokens = _parser().parse(text)
    except RecursionError:
        return Document(path, "markdown", metadata.pop("title", ""), paragraphs(text), metadata=metadata)
    blocks = _blocks(tokens, text.split("\n"))
    title = metadata.pop("title", "") or _first_title(tokens)
    return Document(path, "markdown", title, tuple(blocks), metadata=metadata)


def _blocks(tokens: list[Token], lines: list[str]) -> list[Block]:
    blocks = []
    done = 0
    for token in tokens:
        if token.level != 0 or token.map is None:
            continue
        start, end = token.map
        blocks.extend(_footnotes(lines[done:start]))
        done = max(done, end)
        source = "\n".join(lines[start:end]).strip("\n")
        kind = _KINDS.get(token.type, "paragraph")
        if kind != "code" and "<!--" in source:
            source = _without_comments(source)
        if token.type == "hr" or not source.strip():
            continue
        blocks.append(Block(source, kind, int(token.tag[1:]) if kind == "heading" else 0))
    blocks.extend(_footnotes(lines[done:]))
    return blocks


def _footnotes(lines: list[str]) -> list[Block]:
    """Footnotes of one word among lines no block covers; the other such lines define where links lead."""
    return [Block(line.strip()) for line in lines if line.lstrip().startswith("[^")]


def _without_comments(source: str) -> str:
    """Markdown less its HTML comments, those in code aside; one that never ends stays, with all that follows it."""
    last = source.rfind("-->")
    if last < 0:
        return source
    end = source.find("\n", last) if "\n" in source[last:] else len(source)
    kept = _CODE_OR_COMMENT.sub(lambda match: match.group() if match["ticks"] else "", source[:end])
    return (kept + source[end:]).strip("\n")


def _first_title(tokens: list[Token]) -> str:
    """The words of the first heading of level one."""
    for heading, inline in itertools.pairwise(tokens):
        if heading.type == "heading_open" and heading.level == 0 and heading.tag == "h1":
            title = heading_text(inline.content)
            if title:
                return title
    return ""


def heading_text(content: str) -> str:
    """A heading's words without markup."""
    try:
        inline = MarkdownIt("commonmark").parseInline(content[:_MAX_TITLE_CHARS])[0]
    except RecursionError:
        return " ".join(content[:_MAX_TITLE_CHARS].split())
    parts = [
        child.content if child.type in ("text", "code_inline", "text_special") else " "
        for child in inline.children or []
        if child.type in ("text", "code_inline", "text_special", "softbreak", "hardbreak")
    ]
    return " ".join("".join(parts).split())
