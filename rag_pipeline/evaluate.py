"""Evaluate: how well an index answers labelled questions, and whether another answers them better.

The measures are computed by ir-measures. Knows nothing of how questions are answered.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag_pipeline.errors import ConfigError
from rag_pipeline.records import Hit
from rag_pipeline.search import Mode, Searcher


class Target(BaseModel):
    """One place that answers a question: a document, a page of it, or the passage that holds certain words."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    page: int | None = None
    contains: str = ""
    grade: int = Field(1, ge=1)

    def is_met_by(self, hit: Hit) -> bool:
        """Whether a hit is this place; blanks and case do not count."""
        return (
            hit.path == self.path
            and self.page in (None, hit.page)
            and " ".join(self.contains.casefold().split()) in " ".join(hit.text.casefold().split())
        )


class Question(BaseModel):
    """A question and all places that answer it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    query: str = Field(min_length=1)
    relevant: tuple[Target, ...] = Field(min_length=1)

    @property
    def names_documents(self) -> bool:
        """Whether whole documents are asked for, so that each counts once however many chunks of it are found."""
        return all(target.page is None and not target.contains for target in self.relevant)


@dataclass(frozen=True, slots=True)
class Scores:
    """What came out for one mode of search.

    Attributes:
        measures: ``nDCG@k``, ``R@k`` (recall) and ``RR@k`` (mean reciprocal rank), 0 to 1.
        p50_ms, p95_ms: Time of a warm question.
    """

    mode: str
    questions: int
    measures: dict[str, float]
    p50_ms: float
    p95_ms: float


def load_questions(path: Path) -> list[Question]:
    """Reads ``{"query": ..., "relevant": [{"path": ..., "page": ..., "contains": ..., "grade": ...}]}`` a line.

    Raises:
        ConfigError: The file cannot be read, holds none, or a line is of another form.
    """
    questions = []
    for number, line in enumerate(_read(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            questions.append(Question.model_validate_json(line))
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"])) or "line"
            raise ConfigError(f"{path}:{number}: {where}: {fault['msg']}") from None
    if not questions:
        raise ConfigError(f"{path}: holds no questions")
    return questions


def evaluate(searcher: Searcher, questions: Sequence[Question], modes: Sequence[Mode], k: int) -> list[Scores]:
    """Asks every question in every mode and scores the first k answers.

    Raises:
        ConfigError: The index cannot be asked; see `Searcher.query`.
    """
    return [_evaluate(searcher, questions, mode, k) for mode in modes]


def _evaluate(searcher: Searcher, questions: Sequence[Question], mode: Mode, k: int) -> Scores:
    import ir_measures
    from ir_measures import RR, Qrel, R, ScoredDoc, nDCG

    searcher.query(questions[0].query, k=k, mode=mode)  # loads the model, so that it is no question's time
    qrels, run, seconds = [], [], []
    for number, question in enumerate(questions):
        started = time.perf_counter()
        hits = searcher.query(question.query, k=k, mode=mode, group=question.names_documents)
        seconds.append(time.perf_counter() - started)
        name = str(number)
        qrels += [Qrel(name, str(place), target.grade) for place, target in enumerate(question.relevant)]
        found = _places(question, hits)
        run += [ScoredDoc(name, place, float(len(found) - at)) for at, place in enumerate(found)]
    measures = ir_measures.calc_aggregate([nDCG @ k, R @ k, RR @ k], qrels, run)
    p50, p95 = (float(np.percentile(seconds, share) * 1000) for share in (50, 95))
    rounded = {str(measure): round(float(value), 4) for measure, value in measures.items()}
    return Scores(mode, len(questions), dict(sorted(rounded.items())), round(p50, 1), round(p95, 1))


def _places(question: Question, hits: Sequence[Hit]) -> list[str]:
    """Names the place of every hit: a target's number, or the chunk's own id; one found again is not counted."""
    places: dict[str, None] = {}
    for hit in hits:
        met = [str(number) for number, target in enumerate(question.relevant) if target.is_met_by(hit)]
        places.setdefault(next((place for place in met if place not in places), met[0] if met else hit.chunk_id))
    return list(places)


def save_scores(path: Path, scores: Sequence[Scores]) -> None:
    """Writes scores for a later comparison.

    Raises:
        ConfigError: The file cannot be written.
    """
    try:
        path.write_text(json.dumps([asdict(one) for one in scores], indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def load_scores(path: Path) -> list[Scores]:
    """Reads what `save_scores` wrote.

    Raises:
        ConfigError: It is not such a file.
    """
    try:
        return [Scores(**one) for one in json.loads(_read(path))]
    except (ValueError, TypeError):
        raise ConfigError(f"{path}: not scores that `eval --save` wrote") from None


def find_regressions(scores: Sequence[Scores], baseline: Sequence[Scores], tolerance: float) -> list[str]:
    """Says of every measure that fell by more than the tolerance which, from what and to what.

    Raises:
        ConfigError: The two have no mode and measure in common, or asked different numbers of questions.
    """
    before: dict[str, Any] = {one.mode: one for one in baseline}
    both = [(one, before[one.mode]) for one in scores if one.mode in before]
    if not any(new.measures.keys() & old.measures.keys() and new.questions == old.questions for new, old in both):
        raise ConfigError("eval: nothing to compare: the baseline has other questions, modes or k")
    return [
        f"{new.mode} {name}: {old.measures[name]:.4f} → {value:.4f}"
        for new, old in both
        for name, value in new.measures.items()
        if value < old.measures.get(name, 0) - tolerance
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
