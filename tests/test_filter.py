"""Filter: which chunks get no vector, and why."""

import pytest

from rag_pipeline.config import FilterConfig
from rag_pipeline.records import Chunk
from rag_pipeline.stages.filter import reject_reason


def _chunk(text: str) -> Chunk:
    return Chunk(0, 0, len(text), text, None, (), text, (101, 102))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Eight ch", "too_short"),
        ("Eight cha", None),
        ("a b c d e f g h", None),
        ("a b c d e f g \n\n\t", "too_short"),
        ("", "too_short"),
        ("-- ** == ~~ ++ ||", "not_text"),
        ("潮汐观测站的仪器", None),
        ("محطة المد والجزر", None),
        ("🌊🌊🌊🌊🌊🌊🌊🌊", "not_text"),
        ("12.5 13.0 14.25", None),
    ],
)
def test_the_defaults_reject_short_chunks_and_chunks_of_symbols(text: str, reason: str | None) -> None:
    """Fewer than eight non-blank characters are too short; less than a quarter letters and digits is no text."""
    assert reject_reason(_chunk(text), FilterConfig()) == reason


def test_both_limits_are_inclusive() -> None:
    """A chunk exactly at a limit passes."""
    settings = FilterConfig(min_chars=4, min_text_ratio=0.5)
    assert reject_reason(_chunk("ab--"), settings) is None
    assert reject_reason(_chunk("ab-"), settings) == "too_short"
    assert reject_reason(_chunk("a---"), settings) == "not_text"


def test_zeros_let_everything_pass() -> None:
    """With both limits at zero no chunk is rejected."""
    settings = FilterConfig(min_chars=0, min_text_ratio=0)
    assert [reject_reason(_chunk(text), settings) for text in ("", "-", " \n", "🌊")] == [None] * 4


def test_a_ratio_of_one_takes_letters_and_digits_only() -> None:
    """With a ratio of one a single other character rejects a chunk, and blanks do not count."""
    settings = FilterConfig(min_chars=0, min_text_ratio=1)
    assert reject_reason(_chunk("abc 123\n"), settings) is None
    assert reject_reason(_chunk("abc 123."), settings) == "not_text"


def test_only_the_text_counts_not_the_prompt() -> None:
    """A long context in the prompt does not save a chunk whose own text is too short."""
    chunk = Chunk(0, 0, 2, "ab", 1, ("A section",), "A long title > A section\n\nab", (101, 102))
    assert reject_reason(chunk, FilterConfig()) == "too_short"
