"""A SQLite database of a harness's own: the product's tables, empty."""

import contextlib
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from runyard.db.engine import sync_engine
from runyard.db.tables import metadata

FILE = "runyard.db"


@contextlib.contextmanager
def private_database() -> Iterator[str]:
    """Yields its URL, and deletes it after the block."""
    with tempfile.TemporaryDirectory(prefix="runyard-test-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / FILE
        path.write_bytes(_empty())
        yield _url(path)


@functools.cache
def _empty() -> bytes:
    """Made once a process, from the tables: migrations make the same schema, and take longer."""
    with tempfile.TemporaryDirectory(prefix="runyard-test-") as folder:
        path = Path(folder) / FILE
        engine = sync_engine(_url(path))
        metadata.create_all(engine)
        engine.dispose()
        return path.read_bytes()


def _url(path: Path) -> str:
    return f"sqlite:///{path}"
