import pytest

pytest_plugins = ["tests.contract.queue_sides", "tests.integration.fixtures"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
