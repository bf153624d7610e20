"""Reads the texts: Markdown with one title, a summary below it, and sections."""

import re
from dataclasses import dataclass
from pathlib import Path

_HEADING = re.compile(r"^(#{1,2}) (.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Passage:
    heading: str
    """The document's title for the summary that begins it."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Document:
    path: str
    """The file's name, `retries.md`: how the model refers to it."""

    title: str
    text: str
    passages: tuple[Passage, ...]

    @property
    def summary(self) -> str:
        return self.passages[0].text


def read_documents(folder: Path) -> tuple[Document, ...]:
    """All documents of a folder, by name; blocks while it reads the files.

    Raises:
        ValueError: a file has no title.
    """
    return tuple(parse(path.name, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.md")))


def parse(path: str, text: str) -> Document:
    """Raises ValueError when the text does not begin with a title."""
    before, *parts = _HEADING.split(text)
    if before.strip() or not parts or parts[0] != "#":
        raise ValueError(f"{path} must begin with a title: # Title")
    passages = tuple(
        Passage(heading=heading.strip(), text=_unwrapped(body))
        for heading, body in zip(parts[1::3], parts[2::3], strict=True)
    )
    return Document(path=path, title=passages[0].heading, text=text.strip(), passages=passages)


def _unwrapped(body: str) -> str:
    """Paragraphs on one line each: the files are wrapped for people's editors."""
    paragraphs = re.split(r"\n\s*\n", body.strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
