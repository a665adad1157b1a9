"""Settings: YAML to frozen pydantic models, all errors at once as ``file:line: key: message``.

`recipe` decides vectors, `runtime` never does. Fingerprints of the recipe's parts live here too, since
they are nothing but settings hashed. Knows nothing of files, models on disk, Ray or stores.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from rag_pipeline.errors import ConfigError
from rag_pipeline.records import short_hash

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
MEDIA_TYPES = ("pdf", "markdown", "text", "html", "docx", "pptx", "epub", "code")

# Raise a stage's number when its code changes what it yields: files prepared by the old code are redone.
STAGE_VERSIONS = {
    "parse.pdf": 2,
    "parse.markdown": 2,
    "parse.text": 2,
    "parse.html": 1,
    "parse.docx": 1,
    "parse.pptx": 1,
    "parse.epub": 1,
    "parse.code": 1,
    "clean": 2,
    "chunk": 2,
    "filter": 2,
    "embedding": 1,
}


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class SourceConfig(_Section):
    """Where documents come from."""

    path: str = Field(
        "", description="A folder, an s3://bucket/prefix, or a URL that fsspec has a driver for; SOURCE wins."
    )
    include: tuple[str, ...] = Field((), description="gitignore-style patterns; when given, only these are read.")
    exclude: tuple[str, ...] = Field((), description="gitignore-style patterns that are not read.")
    max_file_mb: float = Field(512, gt=0, description="Larger files are skipped:too_large.")
    follow_symlinks: bool = Field(False, description="Walk into linked folders; links to files are always read.")
    max_deleted_share: float = Field(
        0.3, ge=0, le=1, description="More than this share and more than 10 files gone at once: deletes are withheld."
    )


class PdfConfig(_Section):
    """How PDFs become text."""

    mode: Literal["fast", "layout"] = Field(
        "fast", description="`fast`: plain PyMuPDF; `layout`: PyMuPDF's layout model, slower."
    )
    headings: bool = Field(True, description="Find headings by type size where there is no outline.")
    furniture: Literal["drop", "keep"] = Field(
        "drop", description="Running headers, footers and page numbers: left out of the text, or kept."
    )
    tables: bool = Field(True, description="Write ruled tables as Markdown.")
    ocr: Literal["off", "auto"] = Field("off", description="auto: recognize pages that are images without text.")
    ocr_language: str = Field("eng", description="Tesseract's name of the language, such as eng+deu.")
    max_pages: int = Field(20_000, ge=1, description="PDFs with more pages are skipped:too_large.")
    password: str | None = Field(None, description="Tried on encrypted files.")


class MarkdownConfig(_Section):
    """How Markdown becomes text."""

    front_matter: bool = Field(
        True, description="Take YAML or TOML front matter out of the text; its title is used, the rest is metadata."
    )


class ParseConfig(_Section):
    """recipe.parse: one part per media type, so that a PDF setting leaves Markdown alone."""

    pdf: PdfConfig = PdfConfig()
    markdown: MarkdownConfig = MarkdownConfig()
    max_text_mb: float = Field(
        64, gt=0, description="Files with more text than this, in million characters, are skipped:too_large."
    )


class CleanConfig(_Section):
    """recipe.clean."""

    unicode_form: Literal["NFC", "NFKC"] = Field("NFC", description="Unicode normalization of all text.")
    join_lines: bool = Field(True, description="Join wrapped lines of PDF paragraphs, and words hyphenated over them.")


class ChunkConfig(_Section):
    """recipe.chunk: sizes count the whole prompt by the model's tokenizer, special tokens included."""

    max_tokens: int | None = Field(None, ge=16, description="At most the model's limit, which is the default.")
    overlap_tokens: int = Field(0, ge=0, description="Tokens repeated from the chunk before; below half of max_tokens.")
    context: Literal["none", "title", "section"] = Field("section", description="What precedes the text in the prompt.")

    @model_validator(mode="after")
    def _overlap_fits(self) -> ChunkConfig:
        if self.max_tokens is not None and self.overlap_tokens * 2 >= self.max_tokens:
            raise ValueError(
                f"overlap_tokens ({self.overlap_tokens}) must be below half of max_tokens ({self.max_tokens})"
            )
        return self


class FilterConfig(_Section):
    """recipe.filter: chunks not worth a vector."""

    min_chars: int = Field(3, ge=0, description="Fewer non-blank characters: too_short.")
    min_text_ratio: float = Field(0.25, ge=0, le=1, description="Smaller share of letters and digits: not_text.")
    max_repeats: int = Field(
        3, ge=0, description="Chunks whose text a document repeats more often than this: boilerplate; 0: never."
    )
    languages: tuple[str, ...] = Field(
        (), description="ISO 639-1 codes; when given, chunks in another language: language (extra `language`)."
    )
    near_duplicates: float = Field(
        0,
        ge=0,
        le=1,
        description="MinHash similarity to an earlier chunk of the document: near_duplicate (extra `dedup`).",
    )


class EmbeddingConfig(_Section):
    """recipe.embedding."""

    engine: Literal["vllm", "ray-llm", "ray-serve", "sentence-transformers", "openai", "hash"] = Field(
        "vllm",
        description="`vllm`: in the actor's own process; `ray-llm`: vLLM by ray.data.llm's processor; "
        "`ray-serve`: our deployment on Ray Serve; `sentence-transformers`; `openai`: an OpenAI-compatible endpoint; "
        "`hash`: fake vectors, for tests only.",
    )
    model: str = Field(
        DEFAULT_MODEL, min_length=1, description="A hub name or a folder in sentence-transformers layout."
    )
    revision: str | None = Field(None, description="Hub revision; the weights' own identity is recorded either way.")
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field(
        "auto", description="auto: bfloat16 where the device computes in it, else float32; both may fill one table."
    )
    document_prefix: str | None = Field(None, description="Default: the model's own prompt for documents.")
    query_prefix: str | None = Field(None, description="Default: the model's own prompt for queries.")
    dimension: int | None = Field(
        None, ge=1, description="Keep this many numbers of a vector (Matryoshka models); default: all."
    )
    storage: Literal["float32", "float16"] = Field(
        "float32", description="Number format of stored vectors; float16 halves them."
    )
    engine_args: dict[str, Any] = Field(
        default_factory=dict, description="Passed to vLLM as they are; part of the embedding fingerprint."
    )


class RecipeConfig(_Section):
    """All that decides vectors."""

    parse: ParseConfig = ParseConfig()
    clean: CleanConfig = CleanConfig()
    chunk: ChunkConfig = ChunkConfig()
    filter: FilterConfig = FilterConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()


class EndpointConfig(_Section):
    """runtime.endpoint: where engine `openai` sends token ids; its model must be the recipe's."""

    url: str = Field("", description="The base URL, such as http://localhost:8000/v1.")
    model: str = Field("", description="The model's name there; default: the recipe's.")
    key_env: str = Field("OPENAI_API_KEY", description="The environment variable that holds the key.")
    requests: int = Field(8, ge=1, description="Requests in flight.")


class RuntimeConfig(_Section):
    """All that never decides a vector."""

    device: Literal["auto", "gpu", "cpu"] = Field("auto", description="auto: GPU when Ray has one, else CPU.")
    replicas: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="Engines; auto: by the model's size up to eight on a GPU, or one a node on CPUs."
    )
    embed_batch_rows: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="Prompts per engine call; auto: on a GPU 2048 for a small model, 512 for a large one."
    )
    engine_args: dict[str, Any] = Field(
        default_factory=dict,
        description="Passed to vLLM too: what cannot change a vector, such as gpu_memory_utilization.",
    )
    stall_timeout_s: float = Field(900, gt=0, description="A run in which nothing is finished for so long is stopped.")
    endpoint: EndpointConfig = EndpointConfig()
    serve_app: str = Field("default", description="Engine ray-serve: the Serve application's name.")
    files_per_task: int = Field(16, ge=1, description="Files parsed by one Ray task.")
    parse_timeout_s: float = Field(60, gt=0, description="A file that takes its parser longer, twice: failed:timeout.")
    parse_memory_mb: int = Field(2048, ge=256, description="A file that takes its parser more, twice: failed:memory.")
    commit_rows: int = Field(50_000, ge=1, description="Commit finished files once they hold this many chunks ...")
    commit_interval_s: float = Field(5, ge=0, description="... or this much time has passed.")
    compact_after_fragments: int = Field(32, ge=1, description="Compact the table when it has more fragments.")
    index_above_rows: int = Field(
        100_000, ge=256, description="Build a vector index from this many rows on; below it exact search is faster."
    )
    index_tail_share: float = Field(
        0.1, gt=0, le=1, description="Add new rows to it when they are more than this share."
    )
    upkeep_rows: int = Field(
        50_000, ge=1, description="A process of its own looks after the table where so many rows are to be indexed."
    )
    keep_days: float = Field(7, ge=0, description="Old versions of the table are kept this long, for `rollback`.")
    ray_address: str | None = Field(
        None, description="An existing Ray cluster: host:port, or `auto` on one of its nodes; default: a private one."
    )
    wait_for_gpus: int = Field(0, ge=0, description="Wait until the cluster has so many GPUs before work starts.")
    wait_timeout_s: float = Field(600, gt=0, description="... for so long; then the run ends and says what is missing.")
    num_cpus: int | None = Field(None, ge=1, description="CPUs given to the private cluster; default: all.")

    @model_validator(mode="after")
    def _gpus_are_used(self) -> RuntimeConfig:
        if self.wait_for_gpus and self.device == "cpu":
            raise ValueError("wait_for_gpus: a run with device: cpu uses no GPU; set device to auto or gpu")
        return self


def _as_path(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class OutputConfig(_Section):
    """Where the index is."""

    path: str = Field("./index", min_length=1, description="A local folder, or s3://bucket/prefix.")


class Config(_Section):
    """A whole configuration; every key has a default but the source."""

    source: Annotated[SourceConfig, BeforeValidator(_as_path)] = SourceConfig()
    recipe: RecipeConfig = RecipeConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    output: Annotated[OutputConfig, BeforeValidator(_as_path)] = OutputConfig()

    def with_paths(self, source: str | None = None, index: str | None = None) -> Config:
        """Returns a copy with the command line's SOURCE and --index put in."""
        updates: dict[str, Any] = {}
        if source is not None:
            updates["source"] = self.source.model_copy(update={"path": source})
        if index is not None:
            updates["output"] = self.output.model_copy(update={"path": index})
        return self.model_copy(update=updates)


def load_config(path: str | Path | None) -> Config:
    """Reads a YAML file, or the defaults where there is none.

    Raises:
        ConfigError: Every fault of the file, one a line, as ``file:line: key: message``.
    """
    if path is None:
        return Config()
    try:
        text = Path(path).read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the config: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: the config is not UTF-8 text: {error}") from None
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{path}:{line}: not valid YAML: {getattr(error, 'problem', None) or error}") from None
    if data is None:
        return Config()
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1: expected keys such as 'source' and 'recipe', found {type(data).__name__}")
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        lines = [_explain(path, node, fault) for fault in error.errors()]
        raise ConfigError("\n".join(lines)) from None


def _explain(path: str | Path, node: yaml.Node | None, fault: Any) -> str:
    """One validation fault as ``file:line: key: message``, with what to write instead where that is known."""
    keys = [key for key in fault["loc"] if not str(key).startswith(("function-", "literal[", "int", "constrained-"))]
    message = re.sub(r"^Value error, ", "", fault["msg"])
    if fault["type"] == "extra_forbidden":
        message = "unknown key" + _suggest(keys)
    return f"{path}:{_line_of(node, keys)}: {'.'.join(map(str, keys)) or 'config'}: {message}"


def _suggest(keys: list[Any]) -> str:
    """Names the keys that are allowed where an unknown one stands, the closest first."""
    import difflib

    model: Any = Config
    for key in keys[:-1]:
        annotation = model.model_fields[key].annotation if key in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return ""
        model = annotation
    close = difflib.get_close_matches(str(keys[-1]), model.model_fields, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known keys: {', '.join(model.model_fields)}"


def _line_of(node: yaml.Node | None, keys: list[Any]) -> int:
    """The line of the deepest key that exists in the YAML, from 1."""
    line = 1
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(key)), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _fingerprint(*parts: Any) -> str:
    return short_hash(*(json.dumps(part, sort_keys=True, default=str) for part in parts))


def document_fingerprints(recipe: RecipeConfig) -> dict[str, str]:
    """Hashes, per media type, all that decides a cleaned document; key ``""`` for files of unknown type."""
    clean = (recipe.clean.model_dump(), STAGE_VERSIONS["clean"])
    own = {"pdf": recipe.parse.pdf.model_dump(), "markdown": recipe.parse.markdown.model_dump()}
    limit = recipe.parse.max_text_mb
    parse = {kind: (own.get(kind, {}), limit, STAGE_VERSIONS[f"parse.{kind}"]) for kind in MEDIA_TYPES}
    return {
        "": _fingerprint("", parse, clean),
        **{kind: _fingerprint(kind, parse[kind], clean) for kind in MEDIA_TYPES},
    }


def prepare_fingerprints(recipe: RecipeConfig, embedding_fingerprint: str) -> dict[str, str]:
    """Hashes, per media type, all that decides a file's rows; a file with another one is prepared again.

    The key ``""`` stands for files whose type never became known; every parse setting is in it.
    """
    rest = [recipe.chunk.model_dump(), recipe.filter.model_dump(), STAGE_VERSIONS["chunk"], STAGE_VERSIONS["filter"]]
    return {
        kind: _fingerprint(document, rest, embedding_fingerprint)
        for kind, document in document_fingerprints(recipe).items()
    }


def embedding_fingerprint(identity: dict[str, Any]) -> str:
    """Hashes what decides a vector beyond its prompt (see `embedding.model.Model.identity`)."""
    return _fingerprint("embedding", STAGE_VERSIONS["embedding"], identity)
