import threading
from collections.abc import Iterator

import pytest

import tests.hypothesis_profiles  # noqa: F401 - its profile is known before the options are read

pytest_plugins = ["tests.contract.queue.queue_sides", "tests.integration.fixtures"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def block() -> Iterator[threading.Event]:
    """What a stuck sync tool waits for; set at the end, so that no thread outlives its test."""
    event = threading.Event()
    yield event
    event.set()
