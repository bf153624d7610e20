"""Watches the agents' folder for what a person saves there."""

from collections.abc import AsyncIterator
from pathlib import Path

import watchfiles

SAVED_SUFFIXES = frozenset({".py", ".md", ".txt", ".json", ".toml", ".yaml", ".yml"})
"""Code, and the texts that agents are made of. Not a database or an upload that a tool keeps beside its agent."""


class SavedByAPerson(watchfiles.DefaultFilter):
    def __call__(self, change: watchfiles.Change, path: str) -> bool:
        return Path(path).suffix in SAVED_SUFFIXES and super().__call__(change, path)


async def saved_files(folder: Path) -> AsyncIterator[str]:
    """One path, relative to `folder`, for each burst of changes."""
    async for changes in watchfiles.awatch(folder, watch_filter=SavedByAPerson()):
        _, path = min(changes)
        yield str(Path(path).relative_to(folder))
