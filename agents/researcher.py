"""An agent that answers from a small library about running services, and says where its answers come from."""

import asyncio
import difflib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from runyard import RunContext, agent, lifespan, tool

from ._library.documents import read_documents
from ._library.index import Index

TEXTS = Path(__file__).parent / "_library" / "texts"
LIMIT_MAX = 20


@lifespan
async def library() -> AsyncGenerator[dict[str, Any], None]:
    """Read and index the texts once per worker process, in a thread: files block."""
    documents = await asyncio.to_thread(read_documents, TEXTS)
    yield {"library": Index(documents)}


# All tools only read: a worker may repeat a call that another one died in.


@tool(idempotent=True)
async def search_docs(ctx: RunContext, query: str, limit: int = 5) -> list[dict[str, str]] | str:
    """Search the library for the passages that answer a question best, whatever document they are in.

    Args:
        query: What to look for: a question or its key words.
        limit: How many passages to return at most, from 1 to 20.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise ValueError(f"limit must be from 1 to {LIMIT_MAX}")
    index: Index = ctx.resources["library"]
    hits = index.search(query, limit)
    await ctx.stream.event("searched", {"query": query, "hits": len(hits)})
    if not hits:
        topics = ", ".join(document.title for document in index.documents.values())
        return f"No passage has a word of this question. The library is about: {topics}."
    return [
        {
            "title": hit.document.title,
            "section": hit.passage.heading,
            "path": hit.document.path,
            "text": hit.passage.text,
        }
        for hit in hits
    ]


@tool(idempotent=True)
def read_doc(ctx: RunContext, path: str) -> str:
    """Read one document of the library as a whole.

    Args:
        path: The document's path, as search_docs and list_docs give it.
    """
    index: Index = ctx.resources["library"]
    document = index.documents.get(path)
    if document is None:
        near = difflib.get_close_matches(path, index.documents, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(index.documents)}"
        raise LookupError(f"there is no document {path!r}: {hint}")
    ctx.stream.write(f"Reading {document.title}\n")
    return document.text


@tool(idempotent=True)
def list_docs(ctx: RunContext) -> list[dict[str, str]]:
    """List all documents that the library holds, with what each is about."""
    index: Index = ctx.resources["library"]
    return [
        {"title": document.title, "path": document.path, "summary": document.summary}
        for document in index.documents.values()
    ]


def instructions(ctx: RunContext) -> str:
    """Evaluated before every model call, so it always names the documents that are there."""
    index: Index = ctx.resources["library"]
    titles = "\n".join(f"- {document.title} ({path})" for path, document in index.documents.items())
    return (
        "You are a research assistant for people who run services. You answer from a library of short documents:\n"
        f"{titles}\n\n"
        "Search before you answer. Search again in other words when the passages do not answer the question, and read "
        "a whole document when a passage is not enough. Base every statement on what you found and name the document "
        "it comes from, like (retries.md). If the library does not answer the question, say so; do not fill the gap "
        "from memory. Answer in a few short paragraphs."
    )


researcher = agent(system=instructions, tools=[search_docs, read_doc, list_docs], model="claude-sonnet-5-5")
