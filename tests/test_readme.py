"""README.md is the one document: what it says of settings and files must be so."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
from conftest import ROOT
from pydantic import BaseModel

from rag_pipeline.config import Config


def setting_rows(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[str]:
    """One table row a setting: key, default, description."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from setting_rows(field.annotation, f"{prefix}{name}.")
            continue
        value = field.get_default(call_default_factory=True)
        default = "" if value is None or value == "" else f"`{json.dumps(value)}`".replace('"', "")
        yield f"| `{prefix}{name}` | {default} | {field.description} |".replace("|  |", "| |")


def test_every_setting_stands_in_the_readme_with_its_default() -> None:
    """The configuration table is the models': to renew it, run `python tests/test_readme.py`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [row for row in setting_rows() if row not in text]
    assert not missing, "\n".join(missing)


def test_every_file_stands_in_the_readme_s_tree() -> None:
    """A newcomer sees the architecture in the file tree: no module or script is left out, none is invented."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = text.split("## File tree")[1].split("```")[1]
    names = {line.split("#")[0].strip().split("/")[-1] or line.split("#")[0].strip() for line in tree.splitlines()}
    for path in listed.stdout.splitlines():
        if path.startswith(("rag_pipeline/", "scripts/", "tests/", "configs/")) and not path.endswith("__init__.py"):
            assert path.rsplit("/", 1)[-1] in names, f"{path} is not in README.md's file tree"


if __name__ == "__main__":
    print("| key | default | meaning |\n|---|---|---|")
    print("\n".join(setting_rows()))
