"""Chunking beside langchain's token-counting splitter, on the same cleaned text, in one run.

usage: .venv/bin/python scripts/bench/chunk.py FOLDER [--rounds N]

Parses and cleans FOLDER's files once, then in turn splits all of them with `stages.chunk.split` and with
`RecursiveCharacterTextSplitter.from_huggingface_tokenizer`, both at the model's limit, one process, one core's
worth of threads. Ours yields spans, prompts and token ids, langchain's texts alone. By CPU time; ours remembers
words, so its first round, on words it has never seen, is its slowest: all are printed, and medians compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from langchain_text_splitters import RecursiveCharacterTextSplitter
from transformers import AutoTokenizer

from rag_pipeline.config import Config
from rag_pipeline.embedding.tokenizer import load_tokenizer
from rag_pipeline.errors import DocumentError
from rag_pipeline.records import NO_LIMITS, Document
from rag_pipeline.run import Run
from rag_pipeline.stages.chunk import split
from rag_pipeline.stages.clean import clean
from rag_pipeline.stages.parse import parse


def main() -> None:
    """Measures both in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    run = Run(Config().with_paths(source=args.folder), NO_LIMITS)
    recipe, documents = run.config.recipe, documents_of(run)
    tokens, tokenizer = run.model.max_tokens, load_tokenizer(run.model)
    theirs = RecursiveCharacterTextSplitter.from_huggingface_tokenizer(
        AutoTokenizer.from_pretrained(run.model.path), chunk_size=tokens - 2, chunk_overlap=0
    )
    ways: dict[str, Callable[[], int]] = {
        "ours": lambda: sum(len(list(split(document, recipe.chunk, tokenizer))) for document in documents),
        "langchain": lambda: sum(len(theirs.split_text(document.text)) for document in documents),
    }
    megabytes = sum(len(document.text.encode()) for document in documents) / 1e6
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(args.rounds):
        for way, count in ways.items():
            started = time.process_time()
            chunks = count()
            rates[way].append(megabytes / (time.process_time() - started))
            print(f"{way:<10} {chunks} chunks, {rates[way][-1]:.2f} MB/s", flush=True)
    medians = {way: statistics.median(found) for way, found in rates.items()}
    print(f"{megabytes:.1f} MB; ours / langchain: {medians['ours'] / medians['langchain']:.1f}")


def documents_of(run: Run) -> list[Document]:
    """What can be parsed, cleaned."""
    found = []
    for file in run.list().files:
        if not file.skip:
            try:
                found.append(clean(parse(run.source.read(file), run.config.recipe.parse), run.config.recipe.clean))
            except DocumentError:
                continue
    return found


if __name__ == "__main__":
    main()
