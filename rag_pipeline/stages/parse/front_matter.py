"""Front matter: the YAML or TOML head of a Markdown file, as words about the document.

Knows nothing of Markdown itself.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

import yaml

_YAML_HEAD = re.compile(r"---[ \t]*\n(?P<body>(?:(?!---|\.\.\.).*\n)*+)(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_TOML_HEAD = re.compile(r"\+\+\+[ \t]*\n(?P<body>(?:(?!\+\+\+).*\n)*+)\+\+\+[ \t]*(?:\n|\Z)")
_FIELD = re.compile(r"([A-Za-z_][\w-]*(?: [\w-]+){0,2})[ \t]*:(?:[ \t]+(.*))?")
_MAX_CHARS = 64_000
_MAX_VALUE_CHARS = 1_000


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """Takes the front matter off a text.

    Returns:
        Its fields as words (nested ones left out), and the rest of the text. A head that holds
        no fields is prose between two rules: it stays text.
    """
    for head, load in ((_YAML_HEAD, _load_yaml), (_TOML_HEAD, _load_toml)):
        match = head.match(text)
        if match and match.end() <= _MAX_CHARS:
            fields = load(match["body"])
            if fields is not None:
                return words_of(fields), text[match.end() :]
    return {}, text


def _load_yaml(body: str) -> Mapping[Any, Any] | None:
    try:
        data = yaml.load(body, yaml.BaseLoader)  # every scalar stays as its author wrote it
    except (yaml.YAMLError, RecursionError):
        return _load_fields(body)
    if isinstance(data, dict):
        return data
    return None if data else {}


def _load_fields(body: str) -> Mapping[str, str] | None:
    """What is no YAML, most often for a colon inside a value, line by line; ``None`` where lines are prose."""
    lines = [line for line in body.split("\n") if line and line[0] not in " \t-#"]
    matches = [match for line in lines if (match := _FIELD.fullmatch(line.rstrip()))]
    if len(matches) < len(lines):
        return None
    return {match[1]: (match[2] or "").strip("\"'") for match in matches}


def _load_toml(body: str) -> Mapping[str, Any] | None:
    try:
        return tomllib.loads(body)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return None


def words_of(fields: Mapping[Any, Any]) -> dict[str, str]:
    """Scalars and lists of scalars as strings of one line; what is nested deeper, empty or none is left out."""
    found = {}
    for key, value in fields.items():
        parts = value if isinstance(value, (list, tuple)) else [value]
        if any(part is None or isinstance(part, (dict, list, tuple, set)) for part in parts):
            continue
        words = " ".join(", ".join(_word(part) for part in parts[:100]).split())[:_MAX_VALUE_CHARS]
        if words and isinstance(key, str):
            found[key[:100]] = words
    return found


def _word(value: object) -> str:
    try:
        return str(value)[:_MAX_VALUE_CHARS]
    except ValueError:  # an integer of thousands of digits
        return ""
