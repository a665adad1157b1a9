"""Markdown by a CommonMark parser's line positions: blocks are the source's own lines, never re-rendered.

Knows nothing of other formats but how text is decoded.
"""

from __future__ import annotations

import functools
import re

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin

from rag_pipeline.config import MarkdownConfig
from rag_pipeline.records import Block, Document, FileBytes
from rag_pipeline.stages.parse.text import decode

_KINDS = {
    "heading_open": "heading",
    "fence": "code",
    "code_block": "code",
    "table_open": "table",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
}
_ONLY_COMMENTS = re.compile(r"(?:\s*<!--.*?-->)*\s*", re.DOTALL)


@functools.lru_cache(maxsize=2)
def _parser(front_matter: bool) -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    return parser.use(front_matter_plugin) if front_matter else parser


def parse_markdown(file: FileBytes, settings: MarkdownConfig) -> Document:
    """Cuts Markdown into its top-level blocks; front matter gives the title, HTML comments are left out."""
    text, replaced = decode(file.data)
    lines = text.split("\n")
    blocks: list[Block] = []
    title = ""
    tokens = _parser(settings.front_matter).parse(text)
    for position, token in enumerate(tokens):
        if token.level != 0 or token.map is None:
            continue
        if token.type == "front_matter":
            title = _front_matter_title(token.content)
            continue
        if token.type in ("hr",):
            continue
        source = "\n".join(lines[token.map[0] : token.map[1]]).strip("\n")
        if token.type == "html_block" and _ONLY_COMMENTS.fullmatch(source):
            continue
        kind = _KINDS.get(token.type, "paragraph")
        level = int(token.tag[1:]) if kind == "heading" else 0
        if source.strip():
            blocks.append(Block(source, kind, level))
        if kind == "heading" and level == 1 and not title:
            title = heading_text(tokens[position + 1])
    return Document(file.path, "markdown", title, tuple(blocks), replaced_chars=replaced)


def heading_text(inline: Token) -> str:
    """A heading's words without markup."""
    parts = [child.content for child in inline.children or [] if child.type in ("text", "code_inline")]
    return " ".join("".join(parts).split())


def _front_matter_title(content: str) -> str:
    try:
        data = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError):
        return ""
    title = data.get("title") if isinstance(data, dict) else None
    return " ".join(str(title).split()) if title else ""
