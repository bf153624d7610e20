import pytest

import tests.hypothesis_profiles  # noqa: F401 - its profile is known before the options are read

pytest_plugins = ["tests.contract.queue.queue_sides", "tests.integration.fixtures"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
