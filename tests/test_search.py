"""Search: modes, filters, context, what hits cite, and questions no index was made for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pymupdf
import pytest
from conftest import hash_config, vllm_config
from simulation import index_inline

from rag_pipeline import errors, maintenance, search
from rag_pipeline.config import Config
from rag_pipeline.embedding.bert import BertEncoder
from rag_pipeline.embedding.encoder import encode_prompts, load_sentence_transformer
from rag_pipeline.embedding.model import load_model
from rag_pipeline.embedding.tokenizer import load_tokenizer
from rag_pipeline.records import Report
from rag_pipeline.schema import chunk_schema, conform, to_vectors
from rag_pipeline.search import Filters, Searcher
from rag_pipeline.search.filters import parse_date, parse_pages
from rag_pipeline.search.page_image import draw_page, find_passage
from rag_pipeline.search.ranking import fuse
from rag_pipeline.store import Layout
from rag_pipeline.store.lance import ChunkTable, checked_where

TEXTS = {
    "notes/tides.md": "# Tides\n\n## Moon\n\nThe moon raises the tide.\n\n## Sun\n\nThe sun raises spring tides.\n",
    "notes/o'clock.md": "# Clocks\n\nThe clock on the pier is wound every morning.\n",
    "lamps.txt": "The lighthouses were lit by keepers.\n\nA keeper trims the lamp.\n",
    "中文.txt": "东京的天气很好。\n\n潮位每十分钟观测一次。\n",
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A small index by the fake engine; not to be written to."""
    folder = tmp_path_factory.mktemp("search")
    made = hash_config(folder / "docs", folder / "index")
    write(folder / "docs", TEXTS)
    index_inline(made)
    return made


def write(folder: Path, texts: dict[str, str]) -> None:
    """Files older than a run, so that size and time alone say "unchanged"."""
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        os.utime(file, (time.time() - 3600,) * 2)


def paths(config: Config, text: str, **options: object) -> list[str]:
    """Paths of the hits, best first."""
    return [hit.path for hit in search.query(config, text, **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("lighthouse keeper", "lamps.txt"),
        ("the moon raising a tide", "notes/tides.md"),
        ("天气", "中文.txt"),
        ("观测", "中文.txt"),
        ("WOUND", "notes/o'clock.md"),
    ],
)
def test_words_are_found_stemmed_in_any_case_and_without_blanks(config: Config, question: str, found: str) -> None:
    """Text search finds words as ICU cuts them: English in any form, Chinese that has no blanks."""
    assert paths(config, question, mode="text", k=1) == [found]


def test_text_search_loads_no_model(config: Config) -> None:
    """`--mode text` needs neither torch nor weights: the process never imports them."""
    code = (
        "import sys; from rag_pipeline.cli import main;"
        f"main(['query', 'moon', '--mode', 'text', '--index', {config.output.path!r}]);"
        "print([m for m in ('torch', 'transformers', 'tokenizers', 'safetensors', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]" and "notes/tides.md" in done.stdout


def test_a_row_is_found_by_its_words_as_soon_as_it_is_written(tmp_path: Path) -> None:
    """New rows, swapped rows and deleted rows: text search answers from the table as it is, before any upkeep."""
    layout = Layout.at(tmp_path)
    layout.make()
    table = ChunkTable.create(layout, 4, "{}")
    table.add(rows_of(["an old heron", "two herons"]))
    assert texts_of(table, "heron") == {"an old heron", "two herons"}
    table.swap(["0" * 32], rows_of(["a young crane"]))
    assert texts_of(table, "heron") == {"two herons"} and texts_of(table, "cranes") == {"a young crane"}
    table.delete_all(["0" * 31 + "1"])
    assert texts_of(table, "heron") == set()


def rows_of(texts: list[str]) -> pa.RecordBatchReader:
    """One row a file."""
    columns = {
        "chunk_id": [f"{n:032x}" for n in range(len(texts))],
        "doc_id": [f"{n:032x}" for n in range(len(texts))],
        "text": texts,
        "vector": to_vectors(np.eye(4, dtype=np.float32)[: len(texts)]),
    }
    table = conform(pa.table(columns), chunk_schema(4))
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())


def texts_of(table: ChunkTable, words: str) -> set[str]:
    """The texts that match."""
    return set(table.matching(words, 10, None, ["text"])["text"].to_pylist())


def test_a_table_without_a_text_index_answers_and_gets_one(config: Config, tmp_path: Path) -> None:
    """An index made before there was text search: words are matched as they are, and the next run indexes them."""
    made = hash_config(tmp_path / "docs", tmp_path / "index")
    write(tmp_path / "docs", TEXTS)
    index_inline(made)
    table = ChunkTable.open(Layout.at(tmp_path / "index"))
    table._table.drop_index("words")
    assert paths(made, "lighthouses", mode="text") == ["lamps.txt"]
    assert len(paths(made, "lighthouses", mode="hybrid")) == 5
    assert not Searcher(made).table().has_text_index
    write(tmp_path / "docs", {"new.txt": "One lighthouse more."})
    index_inline(made)
    assert Searcher(made).table().has_text_index
    assert set(paths(made, "lighthouse", mode="text")) == {"lamps.txt", "new.txt"}
    assert maintenance.verify(made) == []


def test_repair_makes_the_text_index_too(tmp_path: Path) -> None:
    """A table made anew from the log is searched by words like the one before."""
    made = hash_config(tmp_path / "docs", tmp_path / "index")
    write(tmp_path / "docs", TEXTS)
    index_inline(made)
    maintenance.repair(made)
    assert paths(made, "keepers", mode="text", k=1) == ["lamps.txt"]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (Filters(paths=("notes/",)), {"notes/tides.md", "notes/o'clock.md"}),
        (Filters(paths=("*.md", "!o'clock.md")), {"notes/tides.md"}),
        (Filters(paths=("/lamps.*",)), {"lamps.txt"}),
        (Filters(paths=("中?.txt",)), {"中文.txt"}),
        (Filters(paths=("nothing/**",)), set()),
        (Filters(section="tides > moon"), {"notes/tides.md"}),
        (Filters(section="50%_\\"), set()),
        (Filters(pages=(1, 9)), set()),
        (Filters(where="path = 'lamps.txt' OR path = 'notes/o''clock.md'"), {"lamps.txt", "notes/o'clock.md"}),
        (Filters(paths=("notes/",), where="path = 'lamps.txt' OR true"), {"notes/tides.md", "notes/o'clock.md"}),
        (Filters(since=datetime.now(UTC) - timedelta(hours=2)), set(TEXTS)),
        (Filters(since=datetime.now(UTC) - timedelta(minutes=30)), set()),
        (Filters(until=datetime.now(UTC) - timedelta(hours=2)), set()),
    ],
)
@pytest.mark.parametrize("mode", ["vector", "hybrid"])
def test_filters_choose_rows_before_they_are_ranked(
    config: Config, filters: Filters, found: set[str], mode: search.Mode
) -> None:
    """With k as large as the answer, every row that passes is a hit, and no other: nothing is filtered afterwards."""
    hits = search.query(config, "keeper of the moon", k=50, mode=mode, filters=filters)
    assert {hit.path for hit in hits} == found


def test_one_hit_is_the_best_that_passes(config: Config) -> None:
    """k=1 with a filter yields a hit even where a thousand better rows do not pass."""
    assert paths(config, "moon tide", mode="text", k=1, filters=Filters(paths=("*.md",), section="sun")) == [
        "notes/tides.md"
    ]


@pytest.mark.parametrize(
    "where",
    [
        "path = 'a'; DROP TABLE chunks",
        "path = 'a' ORDER BY path",
        "path = 'a' LIMIT 1",
        "path = 'a' garbage",
        "path = 'a' -- and more",
        "path = 'a' /* and more */",
        "path = 'a') OR (path = 'b') garbage (path = 'c'",
        "path = 'a') garbage (",
        "path = 'a' UNION SELECT 1",
        "path = 'a",
        "path = $1",
        "path = ?",
        "path",
        "no_such_column = 1",
        "((path = 'a')",
        "  ",
    ],
)
def test_sql_is_one_expression_or_refused(config: Config, where: str) -> None:
    """What LanceDB would ignore silently, or panic at, is refused with a word about it."""
    with pytest.raises(errors.ConfigError, match="--where"):
        search.query(config, "moon", where=where)


def test_quoted_signs_are_data() -> None:
    """Promise 10: signs that are refused outside quotes are ordinary within them."""
    assert checked_where("path = 'a;b -- (c' AND \"path\" != '?'") == "(path = 'a;b -- (c' AND \"path\" != '?')"


@pytest.mark.parametrize("text", ["", "0", "x", "3-1", "-1", "99999999999"])
def test_page_ranges_that_are_none_are_refused(config: Config, text: str) -> None:
    """`--page` takes 7 or 3-9, from 1."""
    with pytest.raises(errors.ConfigError, match="page"):
        search.query(config, "moon", filters=Filters(pages=parse_pages(text)))


def test_dates_are_read_in_local_time_or_refused() -> None:
    """`--since` takes ISO dates; anything else names the form."""
    assert parse_date("2026-01-31T12:00+02:00").timestamp() == datetime(2026, 1, 31, 10, tzinfo=UTC).timestamp()
    with pytest.raises(errors.ConfigError, match="2026-01-31"):
        parse_date("yesterday")


def test_fusion_adds_reciprocal_ranks_and_keeps_the_parts() -> None:
    """A row both modes find comes before one that either ranks first; NaN scores never rank."""
    rows = {name: {"_rowid": number, "doc_id": name, "score": 1.0} for number, name in enumerate("abc")}
    broken = {"_rowid": 9, "doc_id": "n", "score": float("nan")}
    fused = fuse({"vector": [broken, rows["a"], rows["b"]], "text": [rows["c"], rows["b"]]})
    assert [found.row["doc_id"] for found in fused] == ["b", "a", "c"]
    assert fused[0].scores == {
        "vector": 1.0,
        "vector_rank": 2,
        "text": 1.0,
        "text_rank": 2,
        "fusion": pytest.approx(2 / 62),
    }


def test_grouping_gives_every_document_once(config: Config) -> None:
    """With `group`, k hits are of k documents, as many as there are."""
    hits = search.query(config, "moon tide sun", k=4, group=True)
    assert len(hits) == 4 and {hit.path for hit in hits} == set(TEXTS)


def test_neighbours_are_given_as_context(tmp_path: Path) -> None:
    """The chunks before and after, and with overlapping chunks no character twice."""
    words = " ".join(f"word{n} says something of its own." for n in range(120))
    recipe = {"chunk": {"max_tokens": 64, "overlap_tokens": 20}, "filter": {"max_repeats": 0}}
    made = hash_config(tmp_path / "d", tmp_path / "i", recipe=recipe)
    write(tmp_path / "d", {"long.txt": words + "\n"})
    index_inline(made)
    hit = search.query(made, "word60", mode="text", k=1, neighbours=1)[0]
    joined = words[hit.start_char - len(hit.before) : hit.end_char + len(hit.after)]
    assert hit.before and hit.after
    assert joined == hit.before + words[hit.start_char : hit.end_char] + hit.after
    first = search.query(made, "word0", mode="text", k=1, neighbours=3)[0]
    assert first.before == ""


def test_hits_say_whether_the_file_has_changed(tmp_path: Path) -> None:
    """Unchanged, touched, edited, gone: stale is what the bytes say, not the time."""
    docs = tmp_path / "docs"
    made = hash_config(docs, tmp_path / "index")
    write(docs, {name: f"A subject of file {name}." for name in ("same", "touched", "edited", "gone")})
    for file in list(docs.iterdir()):
        file.rename(file.with_suffix(".txt"))
    index_inline(made)
    os.utime(docs / "touched.txt")
    (docs / "edited.txt").write_text("B subject of file edited.")
    (docs / "gone.txt").unlink()
    hits = search.query(Config.model_validate({**made.model_dump(), "source": {}}), "subject", k=9)
    assert {hit.path[:-4]: hit.stale for hit in hits} == {"same": False, "touched": False, "edited": True, "gone": True}
    assert all(hit.location == str(docs / hit.path) for hit in hits)


def test_the_span_is_the_passage(config: Config) -> None:
    """Every hit's characters are those of the document at its span."""
    for hit in search.query(config, "tide", k=50):
        assert hit.end_char - hit.start_char == len(hit.text)
        if hit.path.endswith(".txt"):
            assert hit.text == TEXTS[hit.path][hit.start_char : hit.end_char]


@pytest.mark.parametrize("mode", search.MODES)
def test_odd_tables_and_questions_have_sensible_answers(tmp_path: Path, mode: search.Mode) -> None:
    """An empty table, one row, k beyond the rows, signs only, an emoji, a NUL: hits or none, never a fault."""
    made = hash_config(tmp_path / "docs", tmp_path / "index")
    write(tmp_path / "docs", {"one.txt": "A single row."})
    index_inline(made)
    for question in ("single", "?!", "🦀", "a\0b", "'; DROP TABLE chunks; --", "x" * 9_999, '"unclosed', "the"):
        hits = search.query(made, question, k=10**12, mode=mode)
        assert len(hits) == (1 if mode != "text" else question == "single")
    Searcher(made).table()._table.delete("true")
    assert search.query(made, "single", mode=mode) == []
    for question in ("", " \n", "x" * 1_000_000):
        with pytest.raises(errors.ConfigError, match="question"):
            search.query(made, question, mode=mode)


def test_a_searcher_follows_the_table(tmp_path: Path) -> None:
    """An open searcher sees what a later run wrote, without being opened again."""
    made = hash_config(tmp_path / "docs", tmp_path / "index")
    write(tmp_path / "docs", {"one.txt": "A heron."})
    index_inline(made)
    searcher = Searcher(made)
    assert len(searcher.query("heron", mode="text")) == 1
    write(tmp_path / "docs", {"two.txt": "Two herons."})
    index_inline(made)
    assert len(searcher.query("heron", mode="text")) == 2
    assert [hit.stale for hit in searcher.query("heron", mode="text")] == [False, False]


def test_questions_are_embedded_as_sentence_transformers_does(real_model: Callable[[], Config]) -> None:
    """The encoder and the reference agree to cosine 0.99999, up to prompts beyond the model's limit."""
    model = load_model(real_model().recipe.embedding)
    assert BertEncoder.understands(model)
    prompts = ["When is the tide gauge calibrated?", "x", "潮位", "word " * 600, "Émigré naïve ÅNGSTRÖM", ""]
    reference = load_sentence_transformer(model.path).encode(prompts, normalize_embeddings=True)
    assert (encode_prompts(model, prompts) * reference).sum(axis=1).min() >= 0.99999


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_bert_of_any_size_is_computed_as_transformers_does(
    real_model: Callable[[], Config], tmp_path: Path, pooling: str
) -> None:
    """Heads, widths, norm and pooling are the model's own; weights named as in a task's model are found."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    known = load_model(real_model().recipe.embedding)
    sizes = BertConfig(hidden_size=48, num_attention_heads=3, num_hidden_layers=2, intermediate_size=80)
    sizes.layer_norm_eps = 1e-3
    torch.manual_seed(0)
    bert = BertForMaskedLM(sizes).eval()
    for bias in (value for name, value in bert.named_parameters() if name.endswith("bias")):
        torch.nn.init.normal_(bias)
    bert.save_pretrained(tmp_path)
    shutil.copy(Path(known.path) / "tokenizer.json", tmp_path)
    model = replace(known, path=str(tmp_path), dimension=48, pooling=pooling, normalize=False)
    assert BertEncoder.understands(model)
    tokenizer = load_tokenizer(model)
    for text in ("The tide gauge is calibrated in spring.", ""):
        ids = [*tokenizer.head_ids, *tokenizer.encode([text])[0].ids, *tokenizer.tail_ids]
        states = bert.bert(torch.tensor([ids])).last_hidden_state[0].detach().numpy()
        wanted = states[0] if pooling == "cls" else states.mean(axis=0)
        np.testing.assert_allclose(BertEncoder(model).encode(text), wanted, atol=1e-5)


@pytest.fixture
def real_model() -> Callable[[], Config]:
    """A config whose model is the packaged one."""
    return lambda: vllm_config(Path("docs"), Path("index"))


def test_a_cross_encoder_orders_the_best_anew(config: Config, tmp_path: Path) -> None:
    """`rerank` loads a second model, whose score decides; a folder that is none is refused."""
    from transformers import BertConfig, BertForSequenceClassification

    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertForSequenceClassification(BertConfig(**size, num_labels=1, vocab_size=30_522)).save_pretrained(tmp_path)
    packaged = Path(load_model(config.recipe.embedding).path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(packaged / name, tmp_path)
    hits = search.query(config, "moon tide", k=3, rerank=str(tmp_path))
    scores = [hit.scores["rerank"] for hit in search.query(config, "moon tide", k=50, rerank=str(tmp_path))]
    assert scores == sorted(scores, reverse=True) and len(scores) == 5
    assert [hit.score for hit in hits] == scores[:3] and "fusion" in hits[0].scores
    with pytest.raises(errors.ConfigError, match="no such folder"):
        search.query(config, "moon", rerank="./none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.EmbeddingError, match="cross-encoder"):
        search.query(config, "moon", rerank=str(tmp_path / "empty"))


def test_a_passage_is_found_on_its_page_across_lines_hyphens_and_a_header() -> None:
    """Blanks, hyphens and ligatures do not matter, and a page number in the middle of a passage is marked with it."""
    covered = "is mea- sured every ﬁfteen minutes by Page 3 the radar gauge on the mole,"
    words = f"Handbook The tide {covered} and by nobody else.".split()
    passage = "is measured every fifteen minutes by the radar gauge on the mole"
    assert " ".join(words[n] for n in sorted(find_passage(words, passage))) == covered
    assert find_passage(["每十五分钟观测一次。", "平时"], "十五分钟观测") == {0}
    assert find_passage(words, "nothing of it is here") == set() == find_passage([], "x") == find_passage(words, "")


def test_show_draws_the_page_or_prints_the_passage(
    tmp_path: Path, sample_docs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A PDF's page becomes a PNG with marks on it; a text is printed between its neighbours, its controls harmless."""
    from rag_pipeline.cli import main

    made = hash_config(tmp_path / "docs", tmp_path / "index")
    write(tmp_path / "docs", {"note.md": "# A\n\n## B\n\nfirst\n\n## C\n\nred \x9b31m heron\n\n## D\n\nlast\n"})
    shutil.copy(sample_docs / "handbook" / "safety-rules.pdf", tmp_path / "docs")
    index_inline(made)
    pdf, note = (search.query(made, words, mode="text", k=1)[0].chunk_id for words in ("mercury barometer", "heron"))
    image = tmp_path / "page.png"
    assert main(["show", pdf, "--index", made.output.path, "--to", str(image)]) == errors.EXIT_OK
    assert capsys.readouterr().out.endswith(f"{image}\n")
    assert _has_yellow(pymupdf.Pixmap(image.read_bytes()))
    assert main(["show", note, "--index", made.output.path]) == errors.EXIT_OK
    text = capsys.readouterr().out
    assert "heron" in text and "last" in text and "\x9b" not in text and "\x1b" not in text
    for bad in ("0" * 32, "../x"):
        assert main(["show", bad, "--index", made.output.path]) == errors.EXIT_REFUSED


def test_a_file_that_cannot_be_drawn_costs_a_line() -> None:
    """Garbage, a page too far, an encrypted file: a word about it, from a process of its own."""
    for pdf, page, message in ((b"junk", 1, "cannot be drawn"), (_one_page(), 2, "has 1 pages")):
        with pytest.raises(errors.SourceError, match=message):
            draw_page(pdf, page)
    assert draw_page(_one_page(), 1, "nowhere").startswith(b"\x89PNG")


def _one_page() -> bytes:
    document = pymupdf.open()
    document.new_page().insert_text((72, 72), "A heron.")
    return bytes(document.tobytes())


def _has_yellow(image: pymupdf.Pixmap) -> bool:
    pixels = np.frombuffer(image.samples, dtype=np.uint8).reshape(-1, image.n)[:, :3].astype(int)
    return bool(((pixels[:, 0] > 240) & (pixels[:, 2] < 160)).sum() > 1000)


@pytest.mark.engine
def test_hybrid_finds_the_place_on_the_page(real_index: tuple[Path, Report]) -> None:
    """On real vectors: the cited page of a PDF, by meaning and by words."""
    config = vllm_config(real_index[0].parent / "docs", real_index[0])
    hit = search.query(config, "How often is the tide gauge calibrated?", k=1)[0]
    assert hit.path == "handbook/instrument-handbook.pdf" and hit.page == 3 and hit.stale is False
    assert hit.scores.keys() == {"vector", "vector_rank", "text", "text_rank", "fusion"}


def test_query_json_carries_the_citation(config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line takes every filter and prints span, location, parts of the score and staleness."""
    from rag_pipeline.cli import main

    file = tmp_path / "c.yaml"
    file.write_text("recipe: {embedding: {engine: hash}}\n")
    args = [
        "query",
        "moon tide",
        "-c",
        str(file),
        "--index",
        config.output.path,
        "--path",
        "notes/",
        "--section",
        "moon",
    ]
    assert main([*args, "--json", "--group", "--context", "1", "--since", "2020-01-01"]) == errors.EXIT_OK
    hits = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [hit["path"] for hit in hits] == ["notes/tides.md"]
    assert hits[0]["location"].endswith("docs/notes/tides.md") and hits[0]["stale"] is False
    assert hits[0]["scores"]["text_rank"] == 1
    assert main([*args, "--page", "1"]) == errors.EXIT_OK
    assert "no hits" in capsys.readouterr().err
