"""Evaluation: labels are read or refused, places are counted once, and a worse index is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ROOT, hash_config, vllm_config
from simulation import index_inline

from rag_pipeline import errors
from rag_pipeline.cli import main
from rag_pipeline.config import Config
from rag_pipeline.evaluate import (
    Question,
    Scores,
    _places,
    evaluate,
    find_regressions,
    load_questions,
)
from rag_pipeline.records import Hit, Report
from rag_pipeline.search import Searcher

LABELS = [
    {"query": "heron", "relevant": [{"path": "a.txt"}]},
    {"query": "lamp keeper", "relevant": [{"path": "b.txt", "contains": "Keeper  OF the"}]},
]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Two files by the fake engine."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("A heron stands in the water.")
    (tmp_path / "docs" / "b.txt").write_text("The keeper of the lamp is asleep.")
    made = hash_config(tmp_path / "docs", tmp_path / "index")
    index_inline(made)
    return made


def labels(folder: Path, lines: list[object]) -> Path:
    """A file of labelled questions."""
    file = folder / "labels.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    return file


def hit(rank: int, path: str, text: str, page: int | None = None) -> Hit:
    """A hit as search gives it."""
    return Hit(rank, 1.0 / rank, path, page, (), 0, len(text), text, f"chunk{rank}")


def test_text_search_scores_one_where_the_words_are(config: Config, tmp_path: Path) -> None:
    """Documents and passages that are found first score 1 in every measure, with a time."""
    scores = evaluate(Searcher(config), load_questions(labels(tmp_path, LABELS)), ["text"], 10)[0]
    assert scores.measures == {"R@10": 1.0, "RR@10": 1.0, "nDCG@10": 1.0}
    assert scores.questions == 2 and 0 < scores.p50_ms <= scores.p95_ms


def test_a_place_found_twice_counts_once() -> None:
    """A page that two hits are on is one place; a second target takes the second hit; the rest keep their ids."""
    question = Question.model_validate(
        {"query": "q", "relevant": [{"path": "a", "page": 2}, {"path": "a", "contains": "moon"}]}
    )
    hits = [hit(1, "b", "x"), hit(2, "a", "sun", 2), hit(3, "a", "sun and", 2), hit(4, "a", "the  Moon", 2)]
    assert _places(question, hits) == ["chunk1", "0", "1"]
    assert not question.names_documents


@pytest.mark.parametrize(
    "line",
    [
        {"query": "q"},
        {"query": "", "relevant": [{"path": "a"}]},
        {"query": "q", "relevant": []},
        {"query": "q", "relevant": [{"path": "a", "pgae": 3}]},
        {"query": "q", "relevant": [{"path": "a", "grade": 0}]},
        ["q"],
    ],
)
def test_bad_labels_are_refused_with_their_line(tmp_path: Path, line: object) -> None:
    """A line of another form is named; nothing is evaluated."""
    with pytest.raises(errors.ConfigError, match=r"labels.jsonl:2: "):
        load_questions(labels(tmp_path, [LABELS[0], line]))


def test_a_regression_is_named_and_a_gain_is_not() -> None:
    """Only what fell by more than the tolerance counts; other questions cannot be compared."""
    old = Scores("text", 5, {"R@10": 0.8, "nDCG@10": 0.5}, 1, 2)
    new = Scores("text", 5, {"R@10": 0.795, "nDCG@10": 0.6}, 1, 2)
    assert find_regressions([new], [old], 0.01) == []
    assert find_regressions([new], [old], 0.001) == ["text R@10: 0.8000 → 0.7950"]
    with pytest.raises(errors.ConfigError, match="nothing to compare"):
        find_regressions([new], [Scores("text", 6, {"R@10": 0.8}, 1, 2)], 0.01)


def test_eval_compares_with_saved_scores_and_with_another_index(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 against itself, 8 where an index lost a document, whether the baseline is a file or an index."""
    other = hash_config(tmp_path / "docs", tmp_path / "worse")
    (tmp_path / "docs" / "a.txt").unlink()
    index_inline(other)
    yaml = tmp_path / "c.yaml"
    yaml.write_text("recipe: {embedding: {engine: hash}}\n")
    file, saved = labels(tmp_path, LABELS), tmp_path / "saved.json"
    command = ["eval", str(file), "-c", str(yaml), "--mode", "text", "--index"]
    assert main([*command, str(tmp_path / "index"), "--save", str(saved), "--json"]) == errors.EXIT_OK
    assert json.loads(capsys.readouterr().out)["measures"]["R@10"] == 1.0
    assert main([*command, str(tmp_path / "index"), "--baseline", str(saved)]) == errors.EXIT_OK
    for baseline in (saved, tmp_path / "index"):
        assert main([*command, str(tmp_path / "worse"), "--baseline", str(baseline)]) == errors.EXIT_REGRESSED
        assert "regressed: text R@10: 1.0000 → 0.5000" in capsys.readouterr().err


@pytest.mark.engine
def test_the_sample_questions_are_answered(real_index: tuple[Path, Report]) -> None:
    """The labelled set of sample_docs: every label exists, and both together are no worse than either alone."""
    searcher = Searcher(vllm_config(real_index[0].parent / "docs", real_index[0]))
    questions = load_questions(ROOT / "scripts" / "examples" / "sample_queries.jsonl")
    for target in (target for question in questions for target in question.relevant):
        assert any(target.is_met_by(hit) for hit in searcher.document(target.path)), target
    scores = {one.mode: one.measures["R@5"] for one in evaluate(searcher, questions, ["text", "vector", "hybrid"], 5)}
    assert scores["hybrid"] >= 0.9 and scores["hybrid"] >= max(scores["text"], scores["vector"]) - 0.05
