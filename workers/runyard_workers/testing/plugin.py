"""pytest's plugin: the fixture `harness`, for tests that are not async. It imports nothing until a test asks for it."""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from runyard_workers.testing.opening import Opening
    from runyard_workers.testing.sync import SyncHarness

_OPENINGS: "pytest.StashKey[list[Opening]]" = pytest.StashKey()
_FAILURE: "pytest.StashKey[BaseException]" = pytest.StashKey()


@pytest.fixture
def harness(request: pytest.FixtureRequest) -> "Iterator[Callable[..., SyncHarness]]":
    """As `runyard.testing.harness`, opened at once. The end of the test closes it.

    def test_refund(harness):
        h = harness("agents/support.py")
    """
    from runyard_workers.testing.opening import harness as new_harness

    stash = request.node.stash
    stash[_OPENINGS] = []

    def leave(opening: "Opening") -> None:
        failure = stash.get(_FAILURE, None)
        opening.__exit__(None if failure is None else type(failure), failure, None)

    with ExitStack() as stack:

        def opened(target: Any, **options: Any) -> "SyncHarness":
            opening = new_harness(target, **options)
            entered = opening.__enter__()
            stack.callback(leave, opening)
            stash[_OPENINGS].append(opening)
            return entered

        yield opened


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" and call.excinfo is not None:
        item.stash[_FAILURE] = call.excinfo.value
        for opening in item.stash.get(_OPENINGS, ()):
            report.sections.append(("What the agent did", opening.report()))
    return report
