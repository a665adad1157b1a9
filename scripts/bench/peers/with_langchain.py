"""LangChain's `index()`: SQL record manager, Chroma, recursive Markdown splitter counted in the model's tokens.

`cleanup="full"` is the mode that deletes what the loader no longer returns; `--again` is `force_update=True`, which
its documentation names for updated embeddings. Does not know how it is called or judged.
"""

from __future__ import annotations

import counted


def main_index(task: counted.Task) -> None:
    """Splits every file and hands the chunks to `index()`, as LangChain's indexing guide does."""
    from langchain_chroma import Chroma
    from langchain_classic.indexes import SQLRecordManager
    from langchain_core.documents import Document
    from langchain_core.indexing import index
    from langchain_huggingface import HuggingFaceEmbeddings
    from langchain_text_splitters import Language, RecursiveCharacterTextSplitter
    from transformers import AutoTokenizer

    splitter = RecursiveCharacterTextSplitter.from_huggingface_tokenizer(
        AutoTokenizer.from_pretrained(task.model),
        chunk_size=task.max_tokens - counted.SPECIAL_TOKENS,
        chunk_overlap=0,
        separators=RecursiveCharacterTextSplitter.get_separators_for_language(Language.MARKDOWN),
        is_separator_regex=True,
    )
    files = counted.read_files(task.folder)
    documents = [Document(page_content=text, metadata={"source": path}) for path, text in files]
    records = SQLRecordManager("chroma/docs", db_url=f"sqlite:///{task.state}/records.sqlite")
    records.create_schema()
    embeddings = HuggingFaceEmbeddings(model_name=task.model)
    store = Chroma("docs", embedding_function=embeddings, persist_directory=str(task.state / "chroma"))
    index(
        splitter.split_documents(documents),
        records,
        store,
        cleanup="full",
        source_id_key="source",
        key_encoder="sha256",
        force_update=task.again,
    )


if __name__ == "__main__":
    counted.run(main_index, counted.chroma_rows)
