"""`@lifespan`: resources opened once, merged, closed in reverse order."""

import pytest
from structlog.testing import capture_logs

from runyard import lifespan
from runyard.authoring.errors import AuthoringError
from runyard.authoring.lifespan import open_resources
from runyard.errors import StartError

pytestmark = pytest.mark.anyio


def recording(log, name, mapping, *, closing_error=None):
    @lifespan
    async def opened():
        log.append(f"open {name}")
        yield mapping
        log.append(f"close {name}")
        if closing_error is not None:
            raise closing_error

    return opened


async def test_resources_are_merged_and_closed_in_reverse_order():
    log = []
    async with open_resources([recording(log, "a", {"x": 1}), recording(log, "b", {"y": 2, "z": 3})]) as resources:
        assert dict(resources) == {"x": 1, "y": 2, "z": 3}
        with pytest.raises(TypeError):
            resources["x"] = 5
        log.append("work")
    assert log == ["open a", "open b", "work", "close b", "close a"]


async def test_no_lifespans_give_no_resources():
    async with open_resources([]) as resources:
        assert dict(resources) == {}


async def test_a_key_given_twice_names_both_and_closes_what_was_opened():
    log = []

    @lifespan
    async def first():
        yield {"pool": 1}
        log.append("closed")

    @lifespan
    async def second():
        yield {"pool": 2}
        log.append("closed")

    with pytest.raises(StartError) as raised:
        async with open_resources([first, second]):
            raise AssertionError
    assert "'pool'" in str(raised.value)
    assert first.name in str(raised.value)
    assert second.name in str(raised.value)
    assert log == ["closed", "closed"]


async def test_one_that_fails_to_open_stops_the_start_and_closes_the_others():
    log = []

    @lifespan
    async def broken():
        raise ConnectionError("no route\n\tIs the server running?\n")
        yield {}

    with pytest.raises(
        StartError, match=r"broken.* failed to open: ConnectionError: no route Is the server running\?$"
    ):
        async with open_resources([recording(log, "a", {}), broken]):
            raise AssertionError
    assert log == ["open a", "close a"]


async def test_an_error_in_closing_is_logged_and_the_others_are_closed():
    log = []
    spans = [
        recording(log, "a", {"a": 1}, closing_error=RuntimeError("first")),
        recording(log, "b", {"b": 1}),
        recording(log, "c", {"c": 1}, closing_error=SystemExit("second")),
    ]
    with capture_logs() as logged:
        async with open_resources(spans):
            log.append("work")
    assert log == ["open a", "open b", "open c", "work", "close c", "close b", "close a"]
    assert [(entry["event"], entry["lifespan"]) for entry in logged] == [
        ("lifespan not closed", spans[2].name),
        ("lifespan not closed", spans[0].name),
    ]


async def test_an_error_of_the_worker_passes_and_everything_closes():
    log = []
    with pytest.raises(KeyError, match="ours"):
        async with open_resources([recording(log, "a", {})]):
            raise KeyError("ours")
    assert log == ["open a", "close a"]


@pytest.mark.parametrize("value", [None, 5, [("a", 1)]], ids=repr)
async def test_a_mapping_is_yielded(value):
    log = []
    with pytest.raises(StartError, match="not a mapping"):
        async with open_resources([recording(log, "a", value)]):
            raise AssertionError
    assert log == ["open a", "close a"]


async def test_one_yield():
    @lifespan
    async def never():
        if never is None:
            yield {}

    @lifespan
    async def twice():
        yield {}
        yield {}

    with pytest.raises(StartError, match="ended without a yield"):
        async with open_resources([never]):
            raise AssertionError
    with capture_logs() as logged:
        async with open_resources([twice]):
            pass
    assert [entry["lifespan"] for entry in logged] == [twice.name]


async def test_only_async_generator_functions_without_parameters():
    async def coroutine() -> dict:
        return {}

    async def parameters(ctx):
        yield {}

    for function in (coroutine, parameters, 5):
        with pytest.raises(AuthoringError, match="lifespan"):
            lifespan(function)
