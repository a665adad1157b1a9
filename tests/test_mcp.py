"""What agents and frameworks see: the MCP tools through the official client, and the two example retrievers."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from conftest import ROOT, hash_config
from mcp import Client, StdioServerParameters
from simulation import index_inline

from rag_pipeline.config import Config
from rag_pipeline.search import Filters, Searcher
from rag_pipeline.server.mcp import _MAX_CHARS, create_server


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A short note, a long file and an empty one by the fake engine."""
    folder = tmp_path_factory.mktemp("mcp")
    (folder / "docs").mkdir()
    (folder / "docs" / "note.md").write_text(
        "# Birds\n\n## Herons\n\nA heron stands in the water.\n\n## Cranes\n\nIt flew.\n"
    )
    (folder / "docs" / "long.txt").write_text("\n\n".join(f"Paragraph {n} of the long file." for n in range(3000)))
    (folder / "docs" / "empty.txt").write_text("")
    made = hash_config(folder / "docs", folder / "index", recipe={"filter": {"max_repeats": 0}})
    index_inline(made)
    return made


def talk(server: Any, conversation: Callable[[Client], Awaitable[None]]) -> None:
    """Runs a conversation of the official client with a server."""

    async def run() -> None:
        async with Client(server) as client:
            await conversation(client)

    anyio.run(run)


async def call(client: Client, name: str, **arguments: object) -> dict[str, Any]:
    """The structured result of a tool that must succeed."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return dict(result.structured_content or {})


def test_an_agent_searches_fetches_and_lists(config: Config, tmp_path: Path) -> None:
    """Over stdin and stdout of the real program: a hit with its citation, its surroundings, the files."""
    file = tmp_path / "c.yaml"
    file.write_text("recipe: {embedding: {engine: hash}}\n")
    command = ["-m", "rag_pipeline.cli", "mcp", "-c", str(file), "--index", config.output.path]

    async def conversation(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["search", "fetch", "list"]
        assert all(tool.description and tool.annotations and tool.annotations.read_only_hint for tool in tools)
        hits = (await call(client, "search", query="heron", mode="text", paths=["*.md"], k=1))["hits"]
        assert hits[0]["path"] == "note.md" and hits[0]["section"] == ["Birds", "Herons"]
        passage = await call(client, "fetch", id=hits[0]["chunk_id"])
        assert "heron stands" in passage["text"] and "It flew." in passage["text"] and passage["stale"] is False
        listing = await call(client, "list", contains="NOTE")
        assert listing["total"] == 1 and listing["files"][0]["title"] == "Birds"
        states = {row["path"]: row["state"] for row in (await call(client, "list"))["files"]}
        assert states == {"note.md": "indexed", "long.txt": "indexed", "empty.txt": "empty"}

    talk(StdioServerParameters(command=sys.executable, args=command), conversation)


def test_a_long_file_is_read_in_pieces_without_loss(config: Config) -> None:
    """`next_char` leads through the whole file: every paragraph once, each piece of bounded size."""

    async def conversation(client: Client) -> None:
        texts, start = [], 0
        while start is not None:
            piece = await call(client, "fetch", id="long.txt", start_char=start)
            texts.append(piece["text"])
            start = piece["next_char"]
        assert len(texts) > 1 and max(map(len, texts)) < 1.2 * _MAX_CHARS
        for number in (0, 1, 1499, 2998, 2999):
            assert "\n\n".join(texts).count(f"Paragraph {number} of") == 1

    talk(create_server(config), conversation)


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("fetch", {"id": "../../etc/passwd"}, "not in the index"),
        ("fetch", {"id": "x' OR '1'='1"}, "not in the index"),
        ("search", {"query": " "}, "blank"),
        ("search", {"query": "x", "pages": "later"}, "pages"),
        ("search", {"query": "x", "k": 0}, "k"),
    ],
)
def test_a_tool_says_what_was_wrong(config: Config, tool: str, arguments: dict[str, object], message: str) -> None:
    """A bad call is an error the agent can read; the server goes on."""

    async def conversation(client: Client) -> None:
        result = await client.call_tool(tool, arguments)
        assert result.is_error and message in str(result.content)
        assert (await call(client, "search", query="heron", mode="text"))["hits"]

    talk(create_server(config), conversation)


def example(name: str) -> Any:
    """A module of `scripts/examples/`."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "examples" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_langchain_example_runs(config: Config) -> None:
    """LangChain gets the passage, and the citation as metadata."""
    retriever = example("langchain_retriever").IndexRetriever(searcher=Searcher(config), k=1, mode="text")
    found = retriever.invoke("heron")
    assert "heron stands" in found[0].page_content
    assert found[0].metadata["source"].endswith("docs/note.md") and found[0].metadata["section"] == "Birds > Herons"


def test_the_llamaindex_example_runs(config: Config) -> None:
    """LlamaIndex gets a node with its score and span; filters hold."""
    pytest.importorskip("llama_index.core")
    made = example("llamaindex_retriever").IndexRetriever(Searcher(config), k=1, filters=Filters(paths=("*.md",)))
    found = made.retrieve("heron")
    assert found[0].score and found[0].node.metadata["source"].endswith("docs/note.md")
    assert found[0].node.end_char_idx - found[0].node.start_char_idx == len(found[0].node.text)
