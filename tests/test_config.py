"""Configuration: YAML to settings, faults as ``file:line: key: message``, and the recipe's fingerprints."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from rag_pipeline.config import (
    MEDIA_TYPES,
    ChunkConfig,
    CleanConfig,
    Config,
    EmbeddingConfig,
    FilterConfig,
    MarkdownConfig,
    ParseConfig,
    PdfConfig,
    RecipeConfig,
    embedding_fingerprint,
    load_config,
    prepare_fingerprints,
)
from rag_pipeline.errors import EXIT_REFUSED, ConfigError


def _write(folder: Path, text: str | bytes) -> Path:
    file = folder / "config.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def _faults(folder: Path, text: str | bytes) -> list[str]:
    """The lines of the error that a config file raises, the file's path taken off their front."""
    file = _write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    lines = str(caught.value).split("\n")
    assert all(line.startswith(f"{file}:") for line in lines)
    return [line.removeprefix(f"{file}:") for line in lines]


def test_defaults_need_no_file() -> None:
    """Without a file every setting has its default, and the recipe names the packaged model."""
    config = load_config(None)
    assert config == Config()
    assert config.source.path == ""
    assert config.output.path == "./index"
    assert config.recipe.embedding.model == "sentence-transformers/all-MiniLM-L6-v2"
    assert config.recipe.chunk.max_tokens is None


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n"])
def test_an_empty_file_means_the_defaults(tmp_path: Path, text: str) -> None:
    """A file that sets nothing is the same as no file."""
    assert load_config(_write(tmp_path, text)) == Config()


def test_what_a_file_sets_is_set_and_the_rest_stays_default(tmp_path: Path) -> None:
    """A file's keys replace the defaults one by one, however deep they are."""
    file = _write(tmp_path, "recipe:\n  chunk:\n    max_tokens: 64\nruntime: {replicas: 3}\n")
    config = load_config(str(file))
    assert config.recipe.chunk == ChunkConfig(max_tokens=64)
    assert config.runtime.replicas == 3
    assert config.recipe.clean == CleanConfig()


def test_an_unknown_key_is_named_with_file_line_and_the_closest_key(tmp_path: Path) -> None:
    """A misspelt key is refused with its place and the key that was probably meant."""
    faults = _faults(tmp_path, "recipe:\n  chunk:\n    max_token: 3\n")
    assert faults == ["3: recipe.chunk.max_token: unknown key; did you mean 'max_tokens'?"]


def test_an_unknown_key_without_a_close_one_lists_the_known_keys(tmp_path: Path) -> None:
    """A key like no other is answered with the keys that are allowed there."""
    faults = _faults(tmp_path, "\nwhatsit: 1\n")
    assert faults == ["2: whatsit: unknown key; known keys: source, recipe, runtime, output"]


def test_every_fault_is_reported_at_once_each_with_its_own_line(tmp_path: Path) -> None:
    """Several faults give one line each, in one error."""
    text = (
        "source:\n"
        "  max_file_mb: 0\n"
        "recipe:\n"
        "  # a comment\n"
        "  chunk:\n"
        "    max_tokens: 3\n"
        "    overlap_tokens: -1\n"
        "  embedding: {dtype: int8,\n"
        "    engines: vllm}\n"
        "surprise: yes\n"
    )
    faults = _faults(tmp_path, text)
    assert sorted(fault.split(": ")[:2] for fault in faults) == sorted(
        [
            ["2", "source.max_file_mb"],
            ["6", "recipe.chunk.max_tokens"],
            ["7", "recipe.chunk.overlap_tokens"],
            ["8", "recipe.embedding.dtype"],
            ["9", "recipe.embedding.engines"],
            ["10", "surprise"],
        ]
    )


def test_a_fault_inside_a_list_names_its_item(tmp_path: Path) -> None:
    """A wrong item of a list is reported at the item's own line."""
    faults = _faults(tmp_path, "source:\n  include:\n    - '*.md'\n    - 7\n")
    assert faults[0].startswith("4: source.include.1: ")


def test_bad_yaml_names_the_line(tmp_path: Path) -> None:
    """A file that is not YAML is refused with the line where reading stopped."""
    (fault,) = _faults(tmp_path, "source: ./docs\nrecipe: {chunk: {max_tokens: 64}\noutput: x\n")
    assert fault.startswith("3: not valid YAML: ")


def test_yaml_tags_are_refused_not_run(tmp_path: Path) -> None:
    """A YAML tag that would build a Python object is a fault, and nothing is built."""
    (fault,) = _faults(tmp_path, "source: !!python/object/apply:os.mkdir [/nowhere/at/all]\n")
    assert fault.startswith("1: not valid YAML: ")


def test_an_impossible_date_is_a_fault_with_its_file(tmp_path: Path) -> None:
    """A value that YAML takes for a date that does not exist is refused like any other fault."""
    assert len(_faults(tmp_path, "output: ./index\nsource: 2020-13-45\n")) == 1


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 give a ConfigError that names the file."""
    (fault,) = _faults(tmp_path, b"source: caf\xe9\n")
    assert "not UTF-8" in fault


def test_a_missing_file_is_refused_with_its_name(tmp_path: Path) -> None:
    """A config that is not there gives a ConfigError with exit code 2, not a traceback."""
    file = tmp_path / "absent.yaml"
    with pytest.raises(ConfigError, match="cannot read the config: No such file") as caught:
        load_config(file)
    assert str(file) in str(caught.value)
    assert caught.value.exit_code == EXIT_REFUSED


def test_a_folder_as_config_is_refused(tmp_path: Path) -> None:
    """A folder in the config's place gives a ConfigError."""
    with pytest.raises(ConfigError, match="cannot read the config"):
        load_config(tmp_path)


@pytest.mark.parametrize(("text", "kind"), [("- source\n- recipe\n", "list"), ("hello\n", "str")])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str, kind: str) -> None:
    """A list or a lone word at top level is refused with what was expected."""
    assert _faults(tmp_path, text) == [f"1: expected keys such as 'source' and 'recipe', found {kind}"]


def test_source_and_output_take_a_bare_path(tmp_path: Path) -> None:
    """`source: ./docs` is short for `source: {path: ./docs}`, and `output` likewise."""
    config = load_config(_write(tmp_path, "source: ./docs\noutput: ./elsewhere\n"))
    assert config.source.path == "./docs"
    assert config.output.path == "./elsewhere"
    assert config == load_config(_write(tmp_path, "source: {path: ./docs}\noutput: {path: ./elsewhere}\n"))


def test_with_paths_replaces_only_what_is_given() -> None:
    """The command line's SOURCE and --index replace the paths and keep the other settings."""
    config = Config.model_validate({"source": {"path": "a", "max_file_mb": 3}, "output": "i"})
    assert config.with_paths() == config
    changed = config.with_paths(source="b")
    assert (changed.source.path, changed.source.max_file_mb, changed.output.path) == ("b", 3, "i")
    assert config.with_paths(index="j").output.path == "j"
    assert config.source.path == "a"


def test_settings_are_frozen() -> None:
    """A setting cannot be changed after loading."""
    config = Config()
    with pytest.raises(ValidationError):
        config.recipe.chunk.max_tokens = 64  # type: ignore[misc]
    with pytest.raises(ValidationError):
        config.output = config.output  # type: ignore[misc]


def test_overlap_must_be_below_half_of_the_chunk(tmp_path: Path) -> None:
    """An overlap of half the chunk or more is refused at the line of its section; just below is allowed."""
    (fault,) = _faults(tmp_path, "recipe:\n  chunk:\n    max_tokens: 32\n    overlap_tokens: 16\n")
    assert fault == "2: recipe.chunk: overlap_tokens (16) must be below half of max_tokens (32)"
    assert ChunkConfig(max_tokens=32, overlap_tokens=15).overlap_tokens == 15


@pytest.mark.parametrize("replicas", [0, -2])
def test_replicas_must_be_at_least_one(tmp_path: Path, replicas: int) -> None:
    """A number of engines below one is refused up front, since such a run could embed nothing."""
    faults = _faults(tmp_path, f"runtime:\n  replicas: {replicas}\n")
    assert faults[0].startswith("2: runtime.replicas: ")


def test_a_wrong_value_names_its_key_where_two_types_are_allowed(tmp_path: Path) -> None:
    """A value that is neither a number nor `auto` is reported under its own key, not under pydantic's branches."""
    faults = _faults(tmp_path, "runtime:\n  replicas: many\n")
    assert {fault.rsplit(": ", 1)[0] for fault in faults} == {"2: runtime.replicas"}


def _changed(recipe: RecipeConfig) -> set[str]:
    """The media types whose fingerprint differs from the default recipe's."""
    before, after = prepare_fingerprints(RecipeConfig(), "e"), prepare_fingerprints(recipe, "e")
    assert before.keys() == after.keys()
    return {kind for kind in before if before[kind] != after[kind]}


def test_prints_are_distinct_and_stable() -> None:
    """Each media type and the unknown one have a print of their own, the same on every call."""
    prints = prepare_fingerprints(RecipeConfig(), "e")
    assert set(prints) == {*MEDIA_TYPES, ""}
    assert len(set(prints.values())) == len(prints)
    assert prepare_fingerprints(RecipeConfig(), "e") == prints


@pytest.mark.parametrize(
    ("parse", "kinds"),
    [
        (ParseConfig(pdf=PdfConfig(headings=False)), {"pdf", ""}),
        (ParseConfig(pdf=PdfConfig(password="x")), {"pdf", ""}),
        (ParseConfig(markdown=MarkdownConfig(front_matter=False)), {"markdown", ""}),
    ],
)
def test_a_parse_setting_changes_its_own_media_type_only(parse: ParseConfig, kinds: set[str]) -> None:
    """A PDF setting leaves Markdown and text alone, and the other way round; unknown files follow any."""
    assert _changed(RecipeConfig(parse=parse)) == kinds


@pytest.mark.parametrize(
    "recipe",
    [
        RecipeConfig(clean=CleanConfig(join_lines=False)),
        RecipeConfig(chunk=ChunkConfig(max_tokens=64)),
        RecipeConfig(filter=FilterConfig(min_chars=0)),
    ],
)
def test_clean_chunk_and_filter_settings_change_every_print(recipe: RecipeConfig) -> None:
    """A setting of a stage that all files pass changes all prints."""
    assert _changed(recipe) == {*MEDIA_TYPES, ""}


def test_runtime_source_and_output_change_no_print(tmp_path: Path) -> None:
    """What never decides a vector is in no print."""
    file = _write(tmp_path, "source: elsewhere\noutput: x\nruntime: {replicas: 4, embed_batch_rows: 7}\n")
    assert _changed(load_config(file).recipe) == set()


def test_embedding_settings_count_through_the_fingerprint_only() -> None:
    """Embedding settings decide rows by the model's identity, which every print holds."""
    assert _changed(RecipeConfig(embedding=EmbeddingConfig(query_prefix="q: "))) == set()
    one, two = prepare_fingerprints(RecipeConfig(), "one"), prepare_fingerprints(RecipeConfig(), "two")
    assert all(one[kind] != two[kind] for kind in one)


def test_embedding_fingerprint_depends_on_values_not_on_order() -> None:
    """Equal identities have equal fingerprints whatever the order of their keys; another value gives another."""
    one = embedding_fingerprint({"revision": "a", "dimension": 384})
    assert one == embedding_fingerprint({"dimension": 384, "revision": "a"})
    assert one != embedding_fingerprint({"dimension": 385, "revision": "a"})
