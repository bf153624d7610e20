"""The blocks of code that the README and other pages show, from the files themselves; their tables, too."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def all_blocks(page: str) -> list[tuple[str, str]]:
    """The language and the text of each; the language is "" where none is named."""
    return _BLOCK.findall((ROOT / page).read_text())


def without_blocks(page: str) -> str:
    return _BLOCK.sub("", (ROOT / page).read_text())


def blocks(language: str, page: str = "README.md") -> list[str]:
    return [text for named, text in all_blocks(page) if named == language]


def files(page: str) -> dict[str, str]:
    """Of a page whose Python blocks are all files: each by the path that its first line has."""
    named = [(re.match(r"# ([\w/]+\.py)\n", source), source) for source in blocks("python", page)]
    assert [source for name, source in named if name is None] == []
    return {name[1]: source for name, source in named if name is not None}


def tables(page: str) -> list[list[list[str]]]:
    """The rows of each table, its head first, as cells."""
    found = re.findall(r"(?:^\|.*\n)+", (ROOT / page).read_text(), re.MULTILINE)
    return [
        [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in (head, *rows)]
        for head, _, *rows in (table.splitlines() for table in found)
    ]


def documented_agent() -> str:
    """The file of the agent `dice`."""
    (source,) = (block for block in blocks("python") if "= agent(" in block)
    return source


def documented_test() -> str:
    """The file that tests it."""
    (source,) = (block for block in blocks("python") if "def test_" in block)
    return source


def programs(page: str = "README.md") -> list[str]:
    """The Python blocks that call a gateway."""
    return [block for block in blocks("python", page) if "http://127.0.0.1:8000" in block]
