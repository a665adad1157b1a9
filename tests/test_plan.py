"""Plan: what a run would do, from a listing and a manifest alone."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_pipeline.plan import RETRIED, PlanRules, make_plan
from rag_pipeline.records import File, Listing, ManifestRow, Plan, short_hash

INDEXED_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LONG_BEFORE = int((INDEXED_AT - timedelta(days=1)).timestamp()) * 10**9
FINGERPRINTS = {"pdf": "p1", "markdown": "m1", "text": "t1", "": "u1"}
RULES = PlanRules(FINGERPRINTS)


def _file(path: str, size: int = 10, mtime_ns: int = LONG_BEFORE, skip: str | None = None) -> File:
    return File(path, f"/root/{path}", size, mtime_ns, skip)


def _row(
    path: str,
    content: str = "",
    *,
    state: str = "indexed",
    media_type: str = "markdown",
    size: int = 10,
    mtime_ns: int = LONG_BEFORE,
    fingerprint: str | None = None,
    content_hash: str | None = None,
) -> ManifestRow:
    return ManifestRow(
        path=path,
        doc_id=short_hash(path),
        state=state,
        reason="",
        media_type=media_type,
        title="",
        size_bytes=size,
        mtime_ns=mtime_ns,
        content_hash=f"hash of {content or path}" if content_hash is None else content_hash,
        pages=None,
        chunks=1,
        tokens=7,
        rejects={},
        characters=0,
        replaced_chars=0,
        repaired=False,
        ocr_pages=0,
        metadata={},
        fingerprint=FINGERPRINTS[media_type] if fingerprint is None else fingerprint,
        run_id="run",
        indexed_at=INDEXED_AT,
    )


def _never(file: File) -> str | None:
    raise AssertionError(f"{file.path} was hashed without need")


def _plan(
    files: Iterable[File],
    rows: Iterable[ManifestRow],
    hash_file: Callable[[File], str | None] = _never,
    rules: PlanRules = RULES,
    unreadable: tuple[str, ...] = (),
) -> Plan:
    listing = Listing(tuple(sorted(files, key=lambda file: file.path)), unreadable)
    return make_plan(listing, {row.path: row for row in rows}, rules, hash_file)


def _own_hash(file: File) -> str:
    """The hash of a file that still holds what `_row` of its path says."""
    return f"hash of {file.path}"


def _paths(files: Iterable[File]) -> list[str]:
    return [file.path for file in files]


def test_a_first_run_adds_every_file_and_hashes_none() -> None:
    """With an empty manifest every listed file is added, skipped ones too, and no bytes are read."""
    plan = _plan([_file("b.md"), _file("a.md"), _file(".git/", skip="skipped:hidden")], [])
    assert _paths(plan.added) == [".git/", "a.md", "b.md"]
    assert plan.changes == {"added": 3, "changed": 0, "moved": 0, "deleted": 0, "unchanged": 0}


def test_equal_size_and_time_are_unchanged_without_a_hash() -> None:
    """A file with the manifest's size and time is left alone, and its bytes are not read."""
    plan = _plan([_file("a.md")], [_row("a.md")])
    assert _paths(plan.unchanged) == ["a.md"]
    assert plan.touched == plan.to_process == ()


def test_another_size_is_changed_without_a_hash() -> None:
    """A file of another size has changed; no bytes are needed to know it."""
    plan = _plan([_file("a.md", size=11)], [_row("a.md")])
    assert _paths(plan.changed) == ["a.md"]


@pytest.mark.parametrize("shift_ns", [1, -1, -(10**15)])
def test_another_time_asks_the_hash(shift_ns: int) -> None:
    """A file of equal size and another time, later or earlier, is changed only if its bytes are."""
    moved_in_time = _file("a.md", mtime_ns=LONG_BEFORE + shift_ns)
    same = _plan([moved_in_time], [_row("a.md")], _own_hash)
    assert (_paths(same.unchanged), _paths(same.touched), _paths(same.changed)) == (["a.md"], ["a.md"], [])
    other = _plan([moved_in_time], [_row("a.md")], lambda _: "other")
    assert (_paths(other.unchanged), _paths(other.touched), _paths(other.changed)) == ([], [], ["a.md"])


def test_a_file_that_cannot_be_hashed_is_changed() -> None:
    """Where the hash is asked for and cannot be had, the file is processed, so that it gets a state."""
    plan = _plan([_file("a.md", mtime_ns=LONG_BEFORE + 1)], [_row("a.md")], lambda _: None)
    assert _paths(plan.changed) == ["a.md"]


@pytest.mark.parametrize("before_s", [-60, 0, 1])
def test_a_time_stamp_close_to_indexing_asks_the_hash(before_s: int) -> None:
    """A file written just before it was indexed, or after, may have changed under the same time stamp."""
    mtime_ns = int((INDEXED_AT - timedelta(seconds=before_s)).timestamp() * 1e9)
    file, row = _file("a.md", mtime_ns=mtime_ns), _row("a.md", mtime_ns=mtime_ns)
    asked: list[str] = []
    same = _plan([file], [row], lambda file: asked.append(file.path) or _own_hash(file))
    assert asked == ["a.md"]
    assert _paths(same.unchanged) == ["a.md"]
    assert _paths(_plan([file], [row], lambda _: "other").changed) == ["a.md"]


def test_a_racy_file_that_is_equal_is_touched_so_that_it_is_hashed_once_only() -> None:
    """The manifest learns that a racy file was looked at again; otherwise every run would read it."""
    mtime_ns = int(INDEXED_AT.timestamp()) * 10**9
    plan = _plan([_file("a.md", mtime_ns=mtime_ns)], [_row("a.md", mtime_ns=mtime_ns)], _own_hash)
    assert _paths(plan.touched) == ["a.md"]


def test_a_time_stamp_well_before_indexing_is_trusted() -> None:
    """A file last written ten seconds before it was indexed is not read again."""
    mtime_ns = int((INDEXED_AT - timedelta(seconds=10)).timestamp()) * 10**9
    plan = _plan([_file("a.md", mtime_ns=mtime_ns)], [_row("a.md", mtime_ns=mtime_ns)])
    assert _paths(plan.unchanged) == ["a.md"]


def test_a_recipe_change_redoes_its_media_type_only() -> None:
    """With another PDF fingerprint PDFs are changed; Markdown and text stay, and nothing is hashed."""
    files = [_file("a.pdf"), _file("b.md"), _file("c.txt"), _file("d.xyz")]
    rows = [
        _row("a.pdf", media_type="pdf"),
        _row("b.md"),
        _row("c.txt", media_type="text"),
        _row("d.xyz", media_type="", state="skipped:type"),
    ]
    rules = PlanRules({**FINGERPRINTS, "pdf": "p2"})
    plan = _plan(files, rows, rules=rules)
    assert _paths(plan.changed) == ["a.pdf"]
    assert _paths(plan.unchanged) == ["b.md", "c.txt", "d.xyz"]
    unknown = _plan(files, rows, rules=PlanRules({**FINGERPRINTS, "": "u2"}))
    assert _paths(unknown.changed) == ["d.xyz"]


def test_a_media_type_that_is_no_longer_known_is_changed() -> None:
    """A row of a media type this version has no fingerprint for is prepared again."""
    plan = _plan([_file("a.pdf")], [_row("a.pdf", media_type="pdf")], rules=PlanRules({"": "u1"}))
    assert _paths(plan.changed) == ["a.pdf"]


@pytest.mark.parametrize("state", RETRIED)
def test_failures_that_may_pass_are_tried_again(state: str) -> None:
    """A file whose last failure had a passing cause is processed again although nothing about it changed."""
    row = _row("a.md", state=state, media_type="", content_hash="")
    assert _paths(_plan([_file("a.md")], [row]).changed) == ["a.md"]


@pytest.mark.parametrize(
    "state", ["failed:encrypted", "failed:encoding", "failed:parse", "no_text", "empty", "partial", "skipped:type"]
)
def test_failures_of_the_file_itself_wait_for_a_change(state: str) -> None:
    """A file that failed for what it holds is not tried again until its bytes or the recipe change."""
    row = _row("a.md", state=state)
    assert _paths(_plan([_file("a.md")], [row]).unchanged) == ["a.md"]
    assert _paths(_plan([_file("a.md", size=11)], [row]).changed) == ["a.md"]
    redone = _plan([_file("a.md")], [row], rules=PlanRules({**FINGERPRINTS, "markdown": "m2"}))
    assert _paths(redone.changed) == ["a.md"]


def test_a_file_that_is_now_skipped_is_changed() -> None:
    """An indexed file that is now excluded is processed, so that its rows go; its bytes are not read."""
    plan = _plan([_file("a.md", skip="skipped:excluded")], [_row("a.md")])
    assert _paths(plan.changed) == ["a.md"]


def test_a_file_that_is_no_longer_skipped_is_changed() -> None:
    """A file that was excluded and is now to be read is processed, whatever its stamps."""
    row = _row("a.md", state="skipped:excluded", media_type="", content_hash="")
    assert _paths(_plan([_file("a.md")], [row]).changed) == ["a.md"]


def test_a_file_skipped_as_before_is_unchanged_and_for_another_reason_changed() -> None:
    """An equal skip state needs nothing, even at another size; another skip state updates the manifest."""
    row = _row("a.md", state="skipped:excluded", media_type="", content_hash="")
    assert _paths(_plan([_file("a.md", size=99, skip="skipped:excluded")], [row]).unchanged) == ["a.md"]
    assert _paths(_plan([_file("a.md", skip="skipped:too_large")], [row]).changed) == ["a.md"]


def test_a_renamed_file_is_moved() -> None:
    """A vanished and a new file of equal bytes are one move; no file is added or deleted."""
    plan = _plan([_file("new/b.md")], [_row("old/a.md")], lambda _: "hash of old/a.md")
    assert [(old, file.path) for old, file in plan.moved] == [("old/a.md", "new/b.md")]
    assert plan.added == plan.deleted == ()
    assert _paths(plan.to_process) == ["new/b.md"]


def test_a_copy_is_added_not_moved() -> None:
    """A new file with the bytes of one that is still there is added."""
    plan = _plan([_file("a.md"), _file("copy.md")], [_row("a.md")])
    assert (_paths(plan.added), plan.moved, _paths(plan.unchanged)) == (["copy.md"], (), ["a.md"])


def test_only_new_files_of_a_vanished_size_are_hashed() -> None:
    """A new file whose size no vanished file had is added without reading it; a skipped one is never read."""
    files = [_file("new.md", size=11), _file("skipped.md", skip="skipped:excluded")]
    plan = _plan([*files, _file("kept.md")], [_row("gone.md"), _row("kept.md")])
    assert _paths(plan.added) == ["new.md", "skipped.md"]
    assert plan.deleted == ("gone.md",)


def test_equal_size_but_other_bytes_is_an_add_and_a_delete() -> None:
    """A new file of a vanished file's size and other bytes is no move; neither is one that cannot be read."""
    for answer in ("other", None):
        plan = _plan([_file("b.md")], [_row("a.md")], lambda _, answer=answer: answer)
        assert (_paths(plan.added), plan.moved, plan.deleted) == (["b.md"], (), ("a.md",))


def test_two_equal_files_vanish_and_one_appears() -> None:
    """One vanished file is moved and its twin deleted: a move uses up its origin."""
    rows = [_row("a.md", "same"), _row("b.md", "same")]
    plan = _plan([_file("c.md")], rows, lambda _: "hash of same")
    assert [(old, file.path) for old, file in plan.moved] == [("a.md", "c.md")]
    assert plan.deleted == ("b.md",)


def test_one_file_vanishes_and_two_equal_ones_appear() -> None:
    """The first new file is the move, the second an add."""
    plan = _plan([_file("b.md"), _file("c.md")], [_row("a.md")], lambda _: "hash of a.md")
    assert [(old, file.path) for old, file in plan.moved] == [("a.md", "b.md")]
    assert _paths(plan.added) == ["c.md"]


def test_a_file_without_a_hash_is_no_origin_of_a_move() -> None:
    """A vanished file that was never read is deleted; a new one is not taken for it."""
    rows = [_row("a.md", state="skipped:excluded", content_hash="")]
    plan = _plan([_file("b.md")], rows)
    assert (_paths(plan.added), plan.deleted) == (["b.md"], ("a.md",))


def test_a_file_moved_onto_a_known_path_is_changed() -> None:
    """Renaming onto another known file changes that one and deletes the old path; no move is made of it."""
    rows = [_row("a.md", size=10), _row("b.md", size=20)]
    plan = _plan([_file("b.md", size=10)], rows)
    assert (_paths(plan.changed), plan.moved, plan.deleted) == (["b.md"], (), ("a.md",))


def test_a_swap_of_two_names_is_two_changes() -> None:
    """Two files that exchange their names are both changed."""
    rows = [_row("a.md", size=10), _row("b.md", size=20)]
    plan = _plan([_file("a.md", size=20), _file("b.md", size=10)], rows)
    assert (_paths(plan.changed), plan.moved, plan.deleted) == (["a.md", "b.md"], (), ())


def test_a_vanished_file_is_deleted() -> None:
    """A known file that is no longer listed is deleted, sorted by path."""
    plan = _plan([_file("b.md")], [_row("c.md"), _row("b.md"), _row("a.md")])
    assert plan.deleted == ("a.md", "c.md")
    assert (plan.withheld, plan.doubt) == ((), "")


def test_files_below_an_unreadable_folder_are_withheld() -> None:
    """Known files below a folder that could not be listed are not deleted, and no other delete is made either."""
    files = [_file("a.md"), _file("closed/", skip="failed:unreadable")]
    rows = [_row("a.md"), _row("closed/b.md"), _row("closed/deep/c.md"), _row("closed2/d.md")]
    plan = _plan(files, rows, unreadable=("closed/",))
    assert plan.deleted == ()
    assert plan.withheld == ("closed/b.md", "closed/deep/c.md", "closed2/d.md")
    assert "2 known files" in plan.doubt
    assert "closed/" in plan.doubt


def test_a_file_below_an_unreadable_folder_is_no_origin_of_a_move() -> None:
    """A new file equal to one whose folder could not be listed is added: the old one may still be there."""
    plan = _plan([_file("a.md")], [_row("closed/a.md")], _own_hash, unreadable=("closed/",))
    assert (_paths(plan.added), plan.moved, plan.withheld) == (["a.md"], (), ("closed/a.md",))


def test_an_unreadable_folder_without_known_files_is_no_doubt() -> None:
    """A closed folder the index never knew does not hold up deletes elsewhere."""
    plan = _plan([_file("a.md")], [_row("a.md"), _row("b.md")], unreadable=("closed/",))
    assert (plan.deleted, plan.doubt) == (("b.md",), "")


def test_allowed_deletes_do_not_reach_below_an_unreadable_folder() -> None:
    """With allow_deletes, what is known to be gone is deleted and what is merely unseen is kept."""
    rules = PlanRules(FINGERPRINTS, allow_deletes=True)
    plan = _plan([], [_row("closed/a.md"), _row("b.md")], rules=rules, unreadable=("closed/",))
    assert plan.deleted == ("b.md",)


def test_an_empty_listing_withholds_every_delete() -> None:
    """A source that is suddenly empty deletes nothing, however few files the index knows."""
    plan = _plan([], [_row("a.md"), _row("b.md")])
    assert (plan.deleted, plan.withheld) == ((), ("a.md", "b.md"))
    assert plan.doubt == "the source is empty, while the index knows 2 files"


def test_an_empty_listing_of_an_empty_index_is_no_doubt() -> None:
    """Nothing known and nothing listed is an empty plan."""
    assert _plan([], []) == Plan()


def _some_gone(gone: int, total: int, rules: PlanRules = RULES) -> Plan:
    names = [f"{number:03}.md" for number in range(total)]
    return _plan([_file(name) for name in names[gone:]], [_row(name) for name in names], rules=rules)


def test_many_files_gone_at_once_are_withheld() -> None:
    """More than ten files and more than the allowed share gone at once are kept, and the doubt says how many."""
    plan = _some_gone(11, 20)
    assert (len(plan.deleted), len(plan.withheld)) == (0, 11)
    assert plan.doubt == "11 of 20 known files are gone at once"
    assert plan.changes["deleted"] == 0


def test_allow_deletes_overrides_the_doubt() -> None:
    """With allow_deletes many files gone, or all of them, are deleted."""
    rules = PlanRules(FINGERPRINTS, allow_deletes=True)
    for gone in (11, 20):
        plan = _some_gone(gone, 20, rules)
        assert (len(plan.deleted), plan.withheld, plan.doubt) == (gone, (), "")


@pytest.mark.parametrize(("gone", "total"), [(10, 12), (1, 2), (11, 37), (30, 100)])
def test_few_files_or_a_small_share_gone_are_deleted(gone: int, total: int) -> None:
    """Up to ten files, or up to the allowed share, are deleted without doubt."""
    plan = _some_gone(gone, total)
    assert (len(plan.deleted), plan.doubt) == (gone, "")


def test_the_allowed_share_is_a_setting() -> None:
    """A share of one lets any number go but all; a share of zero withholds from eleven files on."""
    assert len(_some_gone(19, 20, PlanRules(FINGERPRINTS, max_deleted_share=1)).deleted) == 19
    strict = PlanRules(FINGERPRINTS, max_deleted_share=0)
    assert len(_some_gone(10, 1000, strict).deleted) == 10
    assert len(_some_gone(11, 1000, strict).withheld) == 11


def test_moves_do_not_count_as_gone() -> None:
    """Renaming a whole folder is no doubt, however many files it holds."""
    rows = [_row(f"old/{number}.md", str(number)) for number in range(30)]
    files = [_file(f"new/{number}.md") for number in range(30)]
    plan = _plan(files, rows, lambda file: f"hash of {file.path[4:-3]}")
    assert len(plan.moved) == 30
    assert (plan.added, plan.deleted, plan.doubt) == ((), (), "")
    assert all(old[4:] == file.path[4:] for old, file in plan.moved)


def test_counts_and_order_of_a_mixed_plan() -> None:
    """The plan counts each kind of change once, and what must be read comes in path order."""
    files = [
        _file("b-new.md", size=1),
        _file("c-changed.md", size=11),
        _file("a-moved.md", size=5),
        _file("same.md"),
        _file("touched.md", mtime_ns=LONG_BEFORE + 1),
    ]
    rows = [
        _row("c-changed.md"),
        _row("was.md", "moved", size=5),
        _row("same.md"),
        _row("touched.md"),
        _row("gone.md", size=3),
    ]
    plan = _plan(files, rows, lambda file: "hash of moved" if file.path == "a-moved.md" else _own_hash(file))
    assert plan.changes == {"added": 1, "changed": 1, "moved": 1, "deleted": 1, "unchanged": 2}
    assert _paths(plan.to_process) == ["a-moved.md", "b-new.md", "c-changed.md"]
    assert _paths(plan.touched) == ["touched.md"]


_NAMES = st.sampled_from([f"{folder}{name}.md" for folder in ("", "x/", "closed/") for name in "abcd"])
_STAMPS = st.sampled_from([LONG_BEFORE, LONG_BEFORE + 1, int(INDEXED_AT.timestamp()) * 10**9])
_SKIPS = st.sampled_from([None, None, None, "skipped:excluded", "failed:unreadable"])
_STATES = st.sampled_from(["indexed", "indexed", "partial", "failed:timeout", "skipped:excluded", "failed:parse"])


@settings(
    max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    st.lists(st.builds(_file, _NAMES, st.integers(0, 2), _STAMPS, _SKIPS), unique_by=lambda file: file.path),
    st.lists(
        st.builds(
            lambda path, content, state, size, mtime_ns: _row(path, content, state=state, size=size, mtime_ns=mtime_ns),
            _NAMES,
            st.sampled_from("stuv"),
            _STATES,
            st.integers(0, 2),
            _STAMPS,
        ),
        unique_by=lambda row: row.path,
    ),
    st.sampled_from(["hash of s", "hash of t", None]),
    st.sampled_from([(), ("closed/",)]),
)
def test_every_listed_and_every_known_file_is_in_exactly_one_group(
    files: list[File], rows: list[ManifestRow], answer: str | None, unreadable: tuple[str, ...]
) -> None:
    """Listed files are added, changed, moved or unchanged; known ones no longer listed moved, deleted or withheld."""
    plan = _plan(files, rows, lambda _: answer, unreadable=unreadable)
    groups = [*plan.added, *plan.changed, *(file for _, file in plan.moved), *plan.unchanged]
    assert sorted(_paths(groups)) == sorted(_paths(files))
    assert set(plan.touched) <= set(plan.unchanged)
    gone = {row.path for row in rows} - {file.path for file in files}
    assert sorted([*(old for old, _ in plan.moved), *plan.deleted, *plan.withheld]) == sorted(gone)
    assert not (plan.deleted and plan.withheld)
    assert bool(plan.withheld) <= bool(plan.doubt)
