"""Watches the agents' folder for what a person saves there."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import watchfiles

SAVED_SUFFIXES = frozenset({".py", ".md", ".txt", ".json", ".toml", ".yaml", ".yml"})
"""Code, and the texts that agents are made of. Not a database or an upload that a tool keeps beside its agent."""


ABSENT_POLL_S = 0.5


class SavedByAPerson(watchfiles.DefaultFilter):
    def __call__(self, change: watchfiles.Change, path: str) -> bool:
        return Path(path).suffix in SAVED_SUFFIXES and super().__call__(change, path)


async def saved_files(folder: Path) -> AsyncIterator[str]:
    """One path, relative to `folder`, for each burst of changes. A folder that is deleted is waited for; that it is
    there again is a change of all of it, `agents/`.
    """
    saved = SavedByAPerson()

    def counts(change: watchfiles.Change, path: str) -> bool:
        return saved(change, path) or (change is watchfiles.Change.deleted and Path(path) == folder)

    while True:
        async for changes in watchfiles.awatch(folder, watch_filter=counts):
            path = Path(min(changes)[1])
            if any(Path(changed) == folder for _, changed in changes):
                break  # what is made in its place is another folder
            yield str(path.relative_to(folder))
        while not folder.is_dir():  # noqa: ASYNC110, ASYNC240 - there is nothing left to watch
            await asyncio.sleep(ABSENT_POLL_S)
        yield f"{folder.name}/"
