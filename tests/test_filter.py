"""Filter: which chunks get no vector, and why."""

from array import array

import pytest

from rag_pipeline.config import FilterConfig
from rag_pipeline.errors import ConfigError
from rag_pipeline.records import Chunk
from rag_pipeline.stages import filter as filters
from rag_pipeline.stages.filter import check_libraries, reject_reason, reject_reasons


def _chunk(text: str) -> Chunk:
    return Chunk(0, 0, len(text), text, None, (), text, array("i", [101, 102]))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a b", "too_short"),
        ("Yes", None),
        ("a b c", None),
        ("a b \n\n\t", "too_short"),
        ("", "too_short"),
        ("-- ** == ~~ ++ ||", "not_text"),
        ("潮汐观测站的仪器", None),
        ("محطة المد والجزر", None),
        ("🌊🌊🌊🌊🌊🌊🌊🌊", "not_text"),
        ("12.5 13.0 14.25", None),
    ],
)
def test_the_defaults_reject_short_chunks_and_chunks_of_symbols(text: str, reason: str | None) -> None:
    """Fewer than three non-blank characters are too short; less than a quarter letters and digits is no text."""
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


ENGLISH = (
    "The tide gauge on the eastern pier is read every six hours, and what it says is written into the log book. " * 2
)
GERMAN = "Der Pegel an der östlichen Mole wird alle sechs Stunden abgelesen, und was er sagt, steht im Logbuch. " * 2


def _reasons(texts: list[str], **settings: object) -> list[str | None]:
    return reject_reasons([_chunk(text) for text in texts], FilterConfig(**settings))


def test_repeated_boilerplate_is_kept_once() -> None:
    """A text that a document repeats more often than the limit, word for word, stays the first time only."""
    texts = ["Ask the keeper", "Line 7", "Ask the\nKeeper", "ASK the keeper", "Ask the keeper"]
    assert _reasons(texts) == [None, None, "boilerplate", "boilerplate", "boilerplate"]
    assert _reasons(texts[:4]) == [None] * 4
    assert _reasons(texts, max_repeats=0) == [None] * 5
    assert _reasons(texts, max_repeats=1)[2:] == ["boilerplate"] * 3
    assert _reasons([f"{number} mm at six" for number in range(9)]) == [None] * 9


def test_chunks_in_other_languages_are_rejected_where_asked() -> None:
    """With a list of languages a chunk in another one goes; a short one goes by its document's language."""
    assert _reasons([ENGLISH, GERMAN, "1 x 2"], languages=("en",)) == [None, "language", None]
    assert _reasons([ENGLISH, GERMAN, GERMAN, "1 x 2"], languages=("de",)) == ["language", None, None, None]
    assert _reasons([ENGLISH, GERMAN]) == [None, None]


def test_near_duplicates_are_rejected_where_asked() -> None:
    """Of chunks with nearly the same words the first stays; other chunks are left alone."""
    words = [f"word{number}" for number in range(150)]
    near = [*words[:70], "another", *words[71:]]
    texts = [" ".join(words), ENGLISH, " ".join(near)]
    assert _reasons(texts, near_duplicates=0.8) == [None, None, "near_duplicate"]
    assert _reasons(texts) == [None] * 3


def test_a_filter_without_its_library_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the library and how to install it; settings that need none pass."""
    monkeypatch.setattr(filters, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"recipe\.filter\.languages: needs py3langid; pip install"):
        check_libraries(FilterConfig(languages=("en",)))
    with pytest.raises(ConfigError, match="datasketch"):
        check_libraries(FilterConfig(near_duplicates=0.9))
    check_libraries(FilterConfig())
