"""The client for code without an event loop is the same client."""

import asyncio
import inspect
import queue
import subprocess
import sys
import threading

import httpx2
import pytest
from tests.fakes.scripted_gateway import ScriptedGateway, refused, result, resumed, streamed, told

from runyard.client import Client, Ended, SyncClient, Text
from runyard.errors import RunNotFound

GUARD_S = 30.0

END = (3, "result", result())


@pytest.fixture
def gateway() -> ScriptedGateway:
    return ScriptedGateway()


def client(gateway: ScriptedGateway) -> SyncClient:
    return SyncClient("http://gateway", http=gateway.client()._transport.http)


def test_it_has_every_method_of_the_other_with_its_signature_and_words() -> None:
    def methods(kind: type) -> dict[str, object]:
        return {name: member for name, member in inspect.getmembers(kind, callable) if not name.startswith("_")}

    asynchronous, blocking = methods(Client), methods(SyncClient)
    assert asynchronous.keys() - {"aclose"} == blocking.keys() - {"close"}
    for name in asynchronous.keys() - {"aclose"}:
        assert inspect.signature(blocking[name]) == inspect.signature(asynchronous[name]), name
        assert inspect.getdoc(blocking[name]) == inspect.getdoc(asynchronous[name]), name
    assert inspect.signature(Client) == inspect.signature(SyncClient)


def test_a_stream_is_open_from_the_first_moment(gateway: ScriptedGateway) -> None:
    gateway.answers = [streamed((1, None, "hel"), (2, None, "lo"), END)]
    with client(gateway) as here, here.stream("talker", input="hi") as stream:
        assert (stream.stream_id, stream.text) == ("st_1", "")
        assert [type(frame) for frame in stream] == [Text, Text, Ended]
        assert (stream.text, stream.cursor, stream.result.text) == ("hello", 3, "hello")
        assert list(stream) == []


def test_calls_lists_and_errors(gateway: ScriptedGateway) -> None:
    gateway.answers = [
        told(200, result("done")),
        told(200, {"items": [{"id": "run_1", "agent": "a", "status": "idle"}], "nextCursor": "c"}),
        told(200, {"items": [{"id": "run_2", "agent": "a", "status": "idle"}], "nextCursor": None}),
        refused(404, "RUN_NOT_FOUND"),
        resumed(END),
    ]
    with client(gateway) as here:
        assert here.run("talker", "hi").text == "done"
        assert [run.id for run in here.runs()] == ["run_1", "run_2"]
        with pytest.raises(RunNotFound):
            here.get_run("run_3")
        assert here.resume_stream("st_1").read().status == "completed"


def test_no_thread_is_left(gateway: ScriptedGateway) -> None:
    before = threading.active_count()
    gateway.answers = [streamed((1, None, "hel"))]
    with client(gateway) as here:
        stream = here.stream("talker", input="hi")
        assert next(stream).seq == 1
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    here.close()  # once more does nothing


def test_a_client_that_is_closed_says_so(gateway: ScriptedGateway) -> None:
    gateway.answers = [streamed((1, None, "hel"), END)]
    with client(gateway) as here:
        stream = here.stream("talker", input="hi")
    for call in (lambda: here.run("talker", "hi"), lambda: next(stream), lambda: next(here.runs())):
        with pytest.raises(RuntimeError, match="the client is closed"):
            call()


def test_a_client_that_another_thread_closes_says_so_to_who_waits() -> None:
    asked, told = threading.Event(), queue.SimpleQueue[BaseException]()

    async def never(_request: httpx2.Request) -> httpx2.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    def wait() -> None:
        try:
            here.run("talker", "hi")
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            told.put(error)

    here = SyncClient("http://gateway", http=httpx2.AsyncClient(transport=httpx2.MockTransport(never)))
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert asked.wait(GUARD_S)
    here.close()
    error = told.get(timeout=GUARD_S)
    assert (type(error), str(error)) == (RuntimeError, "the client is closed")


FORKED = """
import os, sys
import httpx2
from runyard import SyncClient

def answer(request):
    return httpx2.Response(200, json={"id": "run_1", "agent": "a", "status": "idle"})

client = SyncClient("http://gateway", http=httpx2.AsyncClient(transport=httpx2.MockTransport(answer)))
for place in ("unused", "used"):
    if os.fork() == 0:
        try:
            print(place, client.get_run("run_1").status, flush=True)
        except RuntimeError as error:
            print(place, error, flush=True)
        client.close()
        os._exit(0)
    os.wait()
    client.get_run("run_1")
"""


def test_a_process_that_is_forked_waits_for_no_thread_of_its_parent() -> None:
    ran = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.splitlines() == [
        "unused idle",
        "used the client was used before this process was forked: make one in this process",
    ]


def test_without_the_http_library_it_says_what_to_install() -> None:
    program = """
import sys
sys.modules["httpx2"] = None
from runyard import *
from runyard import agent
try:
    from runyard import Client
except ImportError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "runyard's client needs httpx2: pip install 'runyard[client]'\n"
