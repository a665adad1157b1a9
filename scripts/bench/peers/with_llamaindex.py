"""LlamaIndex's `IngestionPipeline`: docstore with upserts and deletes, Chroma, sentence splitter in model tokens.

Documents carry their path as id, and no metadata that changes when a file is merely touched. There is no switch
for redoing everything: `--again` starts from an empty state. Does not know how it is called or judged.
"""

from __future__ import annotations

import shutil

import counted


def main_index(task: counted.Task) -> None:
    """Loads the persisted pipeline if there is one, runs it over all files, and persists it again."""
    import chromadb
    from llama_index.core import Document
    from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
    from llama_index.core.node_parser import SentenceSplitter
    from llama_index.core.storage.docstore import SimpleDocumentStore
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding
    from llama_index.vector_stores.chroma import ChromaVectorStore
    from transformers import AutoTokenizer

    if task.again:
        shutil.rmtree(task.state)
    tokenizer = AutoTokenizer.from_pretrained(task.model)
    collection = chromadb.PersistentClient(str(task.state / "chroma")).get_or_create_collection("docs")
    pipeline = IngestionPipeline(
        transformations=[
            SentenceSplitter(
                chunk_size=task.max_tokens - counted.SPECIAL_TOKENS, chunk_overlap=0, tokenizer=tokenizer.tokenize
            ),
            HuggingFaceEmbedding(model_name=task.model),
        ],
        vector_store=ChromaVectorStore(chroma_collection=collection),
        docstore=SimpleDocumentStore(),
        docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
    )
    persisted = task.state / "pipeline"
    if persisted.exists():
        pipeline.load(str(persisted))
    documents = [
        Document(
            text=text,
            id_=path,
            metadata={"source": path},
            excluded_embed_metadata_keys=["source"],
            excluded_llm_metadata_keys=["source"],
        )
        for path, text in counted.read_files(task.folder)
    ]
    pipeline.run(documents=documents)
    pipeline.persist(str(persisted))


if __name__ == "__main__":
    counted.run(main_index, counted.chroma_rows)
