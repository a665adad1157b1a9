"""The HTTP server: what it answers, to whom, what stays shut, and the page in a real browser."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, free_port, hash_config
from simulation import index_inline
from starlette.testclient import TestClient

from rag_pipeline import errors
from rag_pipeline.config import Config
from rag_pipeline.embedding.encoder import encode_prompts
from rag_pipeline.embedding.model import load_model
from rag_pipeline.server.app import create_app
from rag_pipeline.server.guard import check_binding

HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script> & harbour seals"
TOKEN = "a-secret-of-some-length"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Two PDFs, notes and a hostile page by the fake engine; not to be written to."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copytree(ROOT / "sample_docs" / "handbook", folder / "docs" / "handbook")
    shutil.copytree(ROOT / "sample_docs" / "broken", folder / "docs" / "broken")
    (folder / "docs" / "hostile.txt").write_text(HOSTILE)
    (folder / "docs" / "b<b>old.md").write_text("# <script>alert(1)</script>\n\nA heron.\n")
    made = hash_config(folder / "docs", folder / "index")
    index_inline(made)
    return made


@pytest.fixture(scope="module")
def client(config: Config) -> TestClient:
    """A client of the server without a token."""
    return TestClient(create_app(config), base_url="http://localhost")


def ids(client: TestClient, question: str) -> list[str]:
    """Chunk ids of the best hits by words."""
    hits = client.get("/api/search", params={"q": question, "mode": "text"}).json()["hits"]
    return [hit["chunk_id"] for hit in hits]


def test_search_answers_with_citations(client: TestClient) -> None:
    """Hits carry path, page, span and parts of the score, all of one named version; filters are taken."""
    parameters = {"q": "tide gauge calibrated", "mode": "text", "k": 1, "path": ["handbook/", "!safety*"], "page": "3"}
    answer = client.get("/api/search", params=parameters).json()
    hit = answer["hits"][0]
    assert hit["path"] == "handbook/instrument-handbook.pdf" and hit["page"] == 3 and hit["stale"] is False
    assert "calibrated" in hit["text"] and hit["location"].endswith("docs/handbook/instrument-handbook.pdf")
    assert answer["version"] > 0 and answer["took_ms"] > 0


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({}, 422),
        ({"q": ""}, 422),
        ({"q": "  "}, 400),
        ({"q": "x", "k": 0}, 422),
        ({"q": "x", "mode": "magic"}, 422),
        ({"q": "x", "no_such": 1}, 422),
        ({"q": "x", "where": "path = 'a'; DROP TABLE chunks"}, 400),
        ({"q": "x", "page": "later"}, 400),
        ({"q": "x", "since": "yesterday"}, 400),
        ({"q": "x" * 10_001}, 422),
    ],
)
def test_bad_requests_are_told_so(client: TestClient, parameters: dict[str, object], code: int) -> None:
    """A request at fault gets a 4xx with a word about it, never a 500."""
    answer = client.get("/api/search", params=parameters)
    assert answer.status_code == code
    assert answer.json().get("error") or answer.json().get("detail")


def test_openapi_documents_every_route(client: TestClient) -> None:
    """/openapi.json describes search, document, chunk, page image, status, health and embeddings."""
    paths = client.get("/openapi.json").json()["paths"]
    api = {"search", "chunk", "document", "page.png", "status"}
    assert set(paths) == {f"/api/{name}" for name in api} | {"/health", "/v1/embeddings", "/v1/models"}
    assert all(next(iter(path.values())).get("description") for path in paths.values())


def test_health_status_and_metrics(client: TestClient) -> None:
    """Health says ok; status counts states and names rejects with reasons; metrics count by route."""
    assert client.get("/health").json() == {"status": "ok"}
    status = client.get("/api/status").json()
    assert status["files"]["failed:encrypted"] == 1 and status["chunks"] > 20
    assert {"broken/password.pdf", "broken/scan-image-only.pdf"} <= {reject["path"] for reject in status["rejects"]}
    client.get("/made/up/by/anyone")
    numbers = client.get("/metrics").text
    assert 'rag_pipeline_requests_total{route="/health",status="200"}' in numbers
    assert f"rag_pipeline_table_chunks {status['chunks']}.0" in numbers and "made/up" not in numbers


def test_the_page_image_is_drawn_as_long_as_the_file_is_the_indexed_one(tmp_path: Path) -> None:
    """A PNG whose passage is marked; a text has none; a file changed since is not drawn; a broken id is no file."""
    (tmp_path / "docs").mkdir()
    pdf = shutil.copy(ROOT / "sample_docs" / "handbook" / "safety-rules.pdf", tmp_path / "docs")
    (tmp_path / "docs" / "note.txt").write_text("A heron.")
    made = hash_config(tmp_path / "docs", tmp_path / "index")
    index_inline(made)
    client = TestClient(create_app(made), base_url="http://localhost")
    chunk, note = ids(client, "mercury barometer")[0], ids(client, "heron")[0]
    image = client.get("/api/page.png", params={"id": chunk})
    assert image.headers["content-type"] == "image/png" and image.content.startswith(b"\x89PNG")
    assert client.get("/api/page.png", params={"id": note}).status_code == 404
    assert client.get("/api/page.png", params={"id": "../../etc/passwd"}).status_code == 400
    Path(pdf).write_bytes(Path(pdf).read_bytes() + b"% changed")
    refused = client.get("/api/page.png", params={"id": chunk})
    assert refused.status_code == 404 and "changed since" in refused.json()["error"]


@pytest.mark.parametrize(
    "path", ["../../../etc/passwd", "/etc/passwd", "docs/../../index", "handbook/../hostile.txt", "", "%2e%2e/x"]
)
def test_no_name_in_a_request_leads_out_of_the_source(client: TestClient, path: str) -> None:
    """Only names the index knows are documents; files beside the page's own are not served."""
    assert client.get("/api/document", params={"path": path}).status_code == 404
    assert client.get(f"/page/{path}").status_code == 404
    assert client.get("/page/..%2fapp.py").status_code == 404


def test_a_document_is_given_whole(client: TestClient) -> None:
    """State, title and all chunks in order."""
    answer = client.get("/api/document", params={"path": "handbook/instrument-handbook.pdf"}).json()
    assert answer["state"] == "indexed" and answer["pages"] == 5 and answer["stale"] is False
    starts = [chunk["start_char"] for chunk in answer["chunks"]]
    assert starts == sorted(starts) and len(starts) > 10
    assert client.get("/api/document", params={"path": "broken/password.pdf"}).json()["chunks"] == []


def test_without_a_token_only_this_machine_is_served(client: TestClient) -> None:
    """A name that someone else's page could own is refused, and so is listening to others."""
    for host, code in (("localhost", 200), ("127.0.0.1:8000", 200), ("[::1]:8000", 200), ("evil.example", 421)):
        assert client.get("/api/status", headers={"host": host}).status_code == code
    with pytest.raises(errors.ConfigError, match="RAG_PIPELINE_TOKEN"):
        check_binding("0.0.0.0", None)
    with pytest.raises(errors.ConfigError, match="fewer than 16"):
        check_binding("0.0.0.0", "short")
    check_binding("::1", None)
    check_binding("0.0.0.0", TOKEN)


def test_with_a_token_nothing_but_health_is_open(config: Config) -> None:
    """Header or cookie; the page's address carries the token once, and it does not stay in the address."""
    guarded = TestClient(create_app(config, TOKEN), base_url="http://index.example", follow_redirects=False)
    assert guarded.get("/health").status_code == 200
    for path in ("/", "/api/status", "/metrics", "/openapi.json", "/page/app.js", "/?token=wrong", "/v1/models"):
        assert guarded.get(path).status_code == 401
    assert guarded.get("/api/status", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert guarded.get("/api/status", params={"token": TOKEN}).status_code == 401
    entered = guarded.get("/", params={"token": TOKEN})
    assert entered.status_code == 303 and entered.headers["location"] == "/"
    assert "HttpOnly" in entered.headers["set-cookie"] and "SameSite=strict" in entered.headers["set-cookie"]
    assert guarded.get("/api/status").status_code == 200


def test_large_and_endless_bodies_are_refused(client: TestClient) -> None:
    """A body is read only if its length is named and small."""
    assert client.post("/v1/embeddings", content=b"x" * 4_000_001).status_code == 413
    assert client.post("/v1/embeddings", content=iter([b"x"])).status_code in (411, 413)


class _Page(HTMLParser):
    """Notes what a page refers to and what it runs by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Collects."""
        names = dict(attributes)
        self.references += [str(names[name]) for name in ("src", "href", "action") if name in names]
        self.inline += [name for name in names if name.startswith("on") or name == "style"]
        self.inline += [tag] if tag in ("style", "iframe") or (tag == "script" and "src" not in names) else []


def test_the_page_runs_nothing_but_its_own_files(client: TestClient) -> None:
    """No inline script, style or handler, no other host; a policy that forbids them; script writes text only."""
    answer = client.get("/")
    page = _Page()
    page.feed(answer.text)
    assert page.inline == [] and page.references
    for reference in page.references:
        assert reference.startswith("/page/") and client.get(reference).status_code == 200
    for path in ("/", "/api/status", "/nowhere", "/page/app.js"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
    script = client.get("/page/app.js").text
    assert not any(
        word in script for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")
    )


def test_embeddings_are_openai_s_form(client: TestClient, config: Config) -> None:
    """One or many texts, floats or base64, equal to the encoder's; bad input is refused."""
    model = load_model(config.recipe.embedding)
    wanted = encode_prompts(model, ["a heron", "a crane"])
    answer = client.post("/v1/embeddings", json={"input": ["a heron", "a crane"], "model": model.name}).json()
    np.testing.assert_allclose([item["embedding"] for item in answer["data"]], wanted, rtol=1e-6)
    assert answer["object"] == "list" and answer["usage"]["prompt_tokens"] > 0
    answer = client.post("/v1/embeddings", json={"input": "a heron", "encoding_format": "base64"}).json()
    packed = np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), dtype="<f4")
    np.testing.assert_array_equal(packed, wanted[0])
    for body, code in (({"input": []}, 400), ({"input": ""}, 400), ({"input": "a", "model": "gpt"}, 404), ({}, 422)):
        assert client.post("/v1/embeddings", json=body).status_code == code


def test_every_answer_is_of_one_version_while_a_run_writes(tmp_path: Path) -> None:
    """Fifty questions a second during runs that rewrite every file: no error, and no file half old, half new."""
    docs = tmp_path / "docs"
    docs.mkdir()
    runtime = {"files_per_task": 2, "commit_rows": 8, "commit_interval_s": 0, "compact_after_fragments": 2}
    made = hash_config(docs, tmp_path / "index", runtime=runtime, recipe={"filter": {"max_repeats": 0}})
    _write_version(docs, 0)
    index_inline(made)
    client = TestClient(create_app(made), base_url="http://localhost")
    stop, answers = threading.Event(), list[tuple[int, list[str]]]()

    def poll() -> None:
        while not stop.is_set():
            answer = client.get("/api/search", params={"q": "version part", "k": 100})
            hits = answer.json().get("hits", [])
            answers.append((answer.status_code, sorted(f"{hit['path']} {hit['text'].split()[4]}" for hit in hits)))
            time.sleep(0.02)

    threads = [threading.Thread(target=poll) for _ in range(2)]
    for thread in threads:
        thread.start()
    for version in range(1, 4):
        _write_version(docs, version)
        index_inline(made)
    stop.set()
    for thread in threads:
        thread.join()
    assert {code for code, _ in answers} == {200}
    for _, found in answers:
        assert set(Counter(found).values()) == {4} and len(found) == 48, found
    assert len({tuple(found) for _, found in answers}) > 1


def _write_version(docs: Path, version: int) -> None:
    for number in range(12):
        parts = (f"# Part {n}\n\nVersion {version} of part {n} of file {number}." for n in range(4))
        (docs / f"{number}.md").write_text("\n\n".join(parts))


@pytest.fixture
def served(config: Config) -> Iterator[str]:
    """A real server on a free port."""
    import uvicorn

    port = free_port()
    server = uvicorn.Server(uvicorn.Config(create_app(config), port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://localhost:{port}"
    server.should_exit = True
    thread.join()


def test_serve_ends_well_when_it_is_told_to(config: Config, tmp_path: Path) -> None:
    """The real program: answers on its port, refuses a port that is taken, and ends with code 0 on SIGTERM."""
    yaml = tmp_path / "c.yaml"
    yaml.write_text("recipe: {embedding: {engine: hash}}\n")
    port = free_port()
    command = [sys.executable, "-m", "rag_pipeline.cli", "serve", "-c", str(yaml), "--index", config.output.path]
    with subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.PIPE, text=True) as server:
        for _ in range(600):
            with contextlib.suppress(OSError):
                assert urllib.request.urlopen(f"http://127.0.0.1:{port}/health").status == 200
                break
            time.sleep(0.1)
        again = subprocess.run([*command, "--port", str(port)], capture_output=True, text=True, check=False)
        assert again.returncode == errors.EXIT_REFUSED and "choose another --port" in again.stderr
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == errors.EXIT_OK


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_the_page_in_a_browser(served: str, tmp_path: Path) -> None:
    """Search as you type, a marked page, status; hostile text and names are shown and never run."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as run:
        browser = run.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text))
        page.on("request", lambda request: None if request.url.startswith(served) else faults.append(request.url))
        page.goto(served)
        page.locator("#filters summary").click()
        page.locator("#mode").select_option("text")
        page.locator("#q").press_sequentially("mercury barometer")
        page.locator("#hits .path", has_text="handbook/safety-rules.pdf").first.click()
        image = page.locator("#place img")
        playwright.expect(image).to_be_visible()
        playwright.expect(image).not_to_have_js_property("naturalWidth", 0, timeout=20_000)
        page.locator("#q").fill("harbour seals")
        page.locator("#hits .path", has_text="hostile.txt").click()
        playwright.expect(page.locator("#place mark")).to_contain_text(HOSTILE)
        page.locator("#q").fill("heron")
        playwright.expect(page.locator("#hits .where").first).to_contain_text("<script>alert(1)</script>")
        page.locator("#status-button").click()
        playwright.expect(page.locator("#status")).to_contain_text("broken/password.pdf")
        page.locator("#path").fill("nothing/")
        playwright.expect(page.locator("#note")).to_contain_text("0 hits")
        assert page.title() == "rag-pipeline" and faults == []
        if os.environ.get("RAG_PIPELINE_SCREENSHOTS"):
            page.screenshot(path=os.environ["RAG_PIPELINE_SCREENSHOTS"])
        browser.close()
