"""The blocks of code that the README and other pages show, from the files themselves."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str, page: str = "README.md") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


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
