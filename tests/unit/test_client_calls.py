"""Calls that are answered at once, or after a while: what is tried again, what is raised, what is told."""

import ssl

import httpx2
import pytest
from tests.fakes.scripted_gateway import (
    HEAD,
    STREAM,
    PatientClock,
    Scripted,
    ScriptedGateway,
    lost,
    refused,
    result,
    resumed,
    told,
)

from runyard.client import Client, StillRunning, UnexpectedAnswer, Unreachable
from runyard.client import client as client_module
from runyard.client.transport import Transport
from runyard.errors import (
    CallerError,
    IdempotencyMismatch,
    InputQueueFull,
    RateLimited,
    RunBusy,
    RunNotFound,
    RunyardError,
    StoreUnavailable,
    Unavailable,
)

pytestmark = pytest.mark.anyio

ACCEPTED = {"runId": "run_1", "sessionId": None, "invocationId": "inv_1", "streamId": STREAM, "status": "queued"}
RUN = {"id": "run_1", "agent": "talker", "status": "running", "invocationId": "inv_1"}
RUNNING = {**ACCEPTED, "status": "running", "steps": 1, "createdAt": "2026-11-30T06:00:00.000Z", "settledAt": None}


@pytest.fixture
def gateway() -> ScriptedGateway:
    return ScriptedGateway()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> PatientClock:
    clock = PatientClock()
    monkeypatch.setattr(Transport, "patience", clock.method())
    monkeypatch.setattr(client_module, "ASK_AGAIN_S", 0)
    return clock


# Waiting -----------------------------------------------------------------------------------------------------------


async def test_a_run_is_waited_for_as_long_as_it_takes(gateway: ScriptedGateway) -> None:
    """One answer is held for 60 s at most."""
    gateway.answers = [
        told(202, ACCEPTED, **HEAD),
        told(202, RUNNING),
        lost(),
        told(202, RUNNING),
        told(200, result("done")),
    ]
    done = await gateway.client().run("talker", "hi")
    assert (done.status, done.text, done.run_id) == ("completed", "done", "run_1")
    assert gateway.asked() == ["POST /v1/agents/talker/runs", *["GET /v1/invocations/inv_1"] * 4]
    assert gateway.header("prefer") == ["wait=45"] * 5


async def test_a_gateway_that_holds_no_answer_back_is_not_asked_all_the_time(
    gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that leaves answers at once."""
    slept_s: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept_s.append(delay_s)

    monkeypatch.setattr(client_module, "ASK_AGAIN_S", 1.0)
    monkeypatch.setattr("runyard.client.client.asyncio.sleep", sleep)
    gateway.answers = [told(202, RUNNING), told(202, RUNNING), told(200, result("done"))]
    assert (await gateway.client().invocation("inv_1", wait_s=60)).text == "done"
    assert len(slept_s) == 2
    assert all(0 < delay_s <= 1 for delay_s in slept_s)


async def test_a_wait_may_be_limited(gateway: ScriptedGateway) -> None:
    gateway.answers = [told(202, ACCEPTED, **HEAD)]
    with pytest.raises(StillRunning) as raised:
        await gateway.client().run("talker", "hi", timeout_s=0)
    assert isinstance(raised.value, TimeoutError)
    assert raised.value.fields == {"runId": "run_1", "invocationId": "inv_1", "streamId": STREAM}


async def test_a_run_that_failed_is_a_result(gateway: ScriptedGateway) -> None:
    error = {"code": "RUN_TIMEOUT", "message": "silent", "retryable": False}
    gateway.answers = [told(200, result("", status="failed", error=error), **HEAD)]
    done = await gateway.client().run("talker", "hi")
    assert done.error is not None
    assert (done.status, done.error.code) == ("failed", "RUN_TIMEOUT")
    with pytest.raises(RunyardError) as raised:
        done.raise_for_failure()
    assert (raised.value.code, raised.value.fields["runId"]) == ("RUN_TIMEOUT", "run_1")


async def test_a_cancel_waits_for_the_end(gateway: ScriptedGateway) -> None:
    asked = {
        "runId": "run_1",
        "invocationId": "inv_1",
        "status": "running",
        "cancelRequested": True,
        "cancelled": False,
    }
    dropped = [{"id": "in_1", "text": "later", "at": "2026-11-30T06:00:00.000Z"}]
    gateway.answers = [
        told(200, RUN),
        lost(),
        told(202, {**asked, "dropped": dropped}),
        lost(),
        told(200, result("half", status="cancelled")),
    ]
    done = await gateway.client().cancel("run_1", wait_s=30)
    assert (done.status, done.cancelled, done.cancel_requested, done.text) == ("cancelled", True, False, "half")
    assert [item.text for item in done.dropped] == ["later"]
    gateway.answers = [told(202, {**asked, "dropped": []})]
    at_once = await gateway.client().cancel("run_1", invocation_id="inv_1")
    assert (at_once.status, at_once.cancel_requested) == ("running", True)
    assert gateway.header("prefer") == [None, None, None, "wait=30", "wait=30", None]
    cancel = ("POST /v1/runs/run_1/cancel", {"invocationId": "inv_1"})
    ended = ("GET /v1/invocations/inv_1", None)
    assert list(zip(gateway.asked(), gateway.bodies(), strict=True)) == [
        *[("GET /v1/runs/run_1", None), cancel, cancel, ended, ended, cancel]
    ], "what is sent again stops nothing that came after it"


async def test_a_run_that_was_never_called_has_nothing_to_cancel(gateway: ScriptedGateway) -> None:
    nothing = {
        "runId": "run_1",
        "invocationId": None,
        "status": "cancelled",
        "cancelRequested": False,
        "cancelled": True,
    }
    gateway.answers = [told(200, RUN | {"invocationId": None}), told(200, {**nothing, "dropped": []})]
    assert (await gateway.client().cancel("run_1", wait_s=5)).invocation_id is None
    assert gateway.bodies()[-1] == {}


async def test_a_functions_value_and_its_refusal(gateway: ScriptedGateway) -> None:
    gateway.answers = [
        told(200, result("", output={"state": "packed"}), **HEAD),
        refused(404, "ORDER_UNKNOWN", headers=HEAD, order="A-18"),
        refused(503, "TRY_LATER", retryable=True, headers=HEAD),
    ]
    client = gateway.client()
    assert (await client.function("order_status", {"order": "A-17"})).output == {"state": "packed"}
    with pytest.raises(CallerError) as unknown:
        await client.function("order_status", {"order": "A-18"})
    assert (unknown.value.code, unknown.value.status, unknown.value.fields) == ("ORDER_UNKNOWN", 404, {"order": "A-18"})
    with pytest.raises(Unavailable, match="TRY_LATER it is") as later:  # it has ended so: no other try would help
        await client.function("order_status", {"order": "A-19"})
    assert (later.value.code, later.value.retryable) == ("TRY_LATER", True)
    assert len(gateway.requests) == 3


async def test_a_public_functions_caller_without_a_token_waits_on_its_stream(gateway: ScriptedGateway) -> None:
    head = {**HEAD, "Location": f"/v1/streams/{STREAM}"}
    gateway.answers = [told(202, ACCEPTED, **head), resumed((1, "result", result("", output=3)))]
    assert (await gateway.client().function("add", {"first": 1, "second": 2})).output == 3
    assert gateway.asked()[1] == f"GET /v1/streams/{STREAM}"


# Trying again ------------------------------------------------------------------------------------------------------


async def test_what_may_pass_is_tried_again_with_the_same_key(gateway: ScriptedGateway, clock: PatientClock) -> None:
    gateway.answers = [
        lost(),
        refused(503, "NOT_READY", retryable=True, headers={"Retry-After": "4"}),
        refused(429, "AGENT_INPUT_QUEUE_FULL", retryable=True),
        refused(408, "REQUEST_TIMEOUT", retryable=True),
        told(202, ACCEPTED, **HEAD),
    ]
    accepted = await gateway.client().steer("run_1", "more")
    assert accepted.invocation_id == "inv_1"
    assert gateway.asked() == ["POST /v1/runs/run_1/input"] * 5
    assert len(set(gateway.header("idempotency-key"))) == 1
    assert clock.slept_s[1] >= 4


async def test_a_body_that_was_cut_is_asked_for_again(gateway: ScriptedGateway) -> None:
    half = Scripted(headers={"Content-Type": "application/json"}, body=b'{"runId": "ru', cut=httpx2.ReadError("reset"))
    gateway.answers = [half, told(202, ACCEPTED)]
    assert (await gateway.client().start("talker", "hi")).run_id == "run_1"


async def test_each_call_has_a_key_of_its_own_or_the_one_that_is_given(gateway: ScriptedGateway) -> None:
    gateway.answers = [told(202, ACCEPTED)] * 3
    client = gateway.client()
    await client.start("talker", "hi")
    await client.start("talker", "hi")
    await client.start("talker", "hi", idempotency_key="mine")
    first, second, third = gateway.header("idempotency-key")
    assert first != second
    assert third == "mine"


@pytest.mark.parametrize(
    ("status", "code", "kind", "retryable"),
    [
        (404, "RUN_NOT_FOUND", RunNotFound, False),
        (409, "RUN_BUSY", RunBusy, True),
        (409, "IDEMPOTENCY_MISMATCH", IdempotencyMismatch, False),
        (418, "INVENTED_LATER", CallerError, False),
        (500, "INTERNAL", RunyardError, False),
        (503, "INVENTED_LATER", Unavailable, False),
    ],
)
async def test_what_will_not_pass_is_raised_at_once(
    gateway: ScriptedGateway, status: int, code: str, kind: type[RunyardError], *, retryable: bool
) -> None:
    gateway.answers = [refused(status, code, retryable=retryable, runId="run_1")]
    with pytest.raises(kind) as raised:
        await gateway.client().start("talker", "hi")
    error = raised.value
    assert (error.code, error.status, error.retryable, error.request_id) == (code, status, retryable, "req_1")
    assert (str(error), error.fields) == (f"{code} it is", {"runId": "run_1"})


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused(429, "RATE_LIMITED", retryable=True, headers={"Retry-After": "61"}, retryAfterMs=60500), RateLimited),
        (refused(429, "AGENT_INPUT_QUEUE_FULL", retryable=True), InputQueueFull),
        (refused(503, "STORE_UNAVAILABLE", retryable=True), StoreUnavailable),
        (lost(), Unreachable),
    ],
)
async def test_patience_ends(
    gateway: ScriptedGateway, clock: PatientClock, answer: Scripted, kind: type[RunyardError]
) -> None:
    gateway.answers = [answer] * 100
    with pytest.raises(kind):
        await gateway.client(patience_s=60).start("talker", "hi")
    assert clock.at_s <= 60


async def test_retry_after_may_be_a_date(gateway: ScriptedGateway, clock: PatientClock) -> None:
    never = refused(503, "NOT_READY", retryable=True, headers={"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"})
    gateway.answers = [
        refused(503, "NOT_READY", retryable=True, headers={"Retry-After": "Thu, 01 Jan 2026 00:00:00 GMT"}),
        never,
    ]
    with pytest.raises(Unavailable):
        await gateway.client().start("talker", "hi")
    assert len(clock.slept_s) == 1


@pytest.mark.parametrize(
    "error",
    [httpx2.LocalProtocolError("illegal"), httpx2.UnsupportedProtocol("ftp"), httpx2.ConnectError("no trust")],
)
async def test_what_is_wrong_at_every_try_is_tried_once(gateway: ScriptedGateway, error: Exception) -> None:
    if isinstance(error, httpx2.ConnectError):
        error.__cause__ = ssl.SSLCertVerificationError("self-signed")
    gateway.answers = [Scripted(status=None, cut=error)]
    with pytest.raises(Unreachable):
        await gateway.client().agents()


async def test_what_is_no_gateway_is_named(gateway: ScriptedGateway) -> None:
    page = Scripted(headers={"Content-Type": "text/html"}, body=b"<h1>Welcome</h1>")
    gateway.answers = [
        page,
        Scripted(status=404, body=b"nothing here"),
        told(200, ["a list"]),
        told(200, {"items": [{}]}),
    ]
    for _ in range(4):
        with pytest.raises(UnexpectedAnswer):
            await gateway.client().agents()


# What is asked and told --------------------------------------------------------------------------------------------


async def test_lists_are_read_page_by_page(gateway: ScriptedGateway) -> None:
    def page(first: int, count: int, cursor: str | None) -> Scripted:
        rows = [{"id": f"run_{number}", "agent": "talker", "status": "idle"} for number in range(first, first + count)]
        return told(200, {"items": rows, "nextCursor": cursor})

    gateway.answers = [page(0, 2, "c_1"), lost(), page(2, 2, "c_2"), page(4, 1, None)]
    listed = gateway.client().runs(agent="talker", metadata={"paid": True, "customer": "c 1", "tries": 3})
    assert [run.id async for run in listed] == [f"run_{number}" for number in range(5)]
    filters = {"agent": "talker", "metadata.paid": "true", "metadata.customer": "c 1", "metadata.tries": "3"}
    assert dict(gateway.requests[0].url.params) == {**filters, "limit": "100"}
    assert [request.url.params.get("cursor") for request in gateway.requests] == [None, "c_1", "c_1", "c_2"]


async def test_a_list_may_be_limited(gateway: ScriptedGateway) -> None:
    rows = [{"runId": "run_1", "seq": number, "role": "user", "content": "x"} for number in range(3)]
    gateway.answers = [told(200, {"items": rows, "nextCursor": "c_1"})]
    messages = [row async for row in gateway.client().messages("run_1", order="desc", limit=3)]
    assert [row.seq for row in messages] == [0, 1, 2]
    assert dict(gateway.requests[0].url.params) == {"order": "desc", "limit": "3"}
    assert [row async for row in gateway.client().messages("run_1", limit=0)] == []
    assert len(gateway.requests) == 1


async def test_a_message_has_its_text(gateway: ScriptedGateway) -> None:
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "t", "name": "n", "input": {}},
        {"type": "text", "text": "b"},
    ]
    rows = [
        {"runId": "run_1", "seq": 1, "role": "user", "content": "hi"},
        {"runId": "run_1", "seq": 2, "role": "assistant", "content": blocks},
    ]
    gateway.answers = [told(200, {"items": rows, "nextCursor": None})]
    assert [row.text async for row in gateway.client().messages("run_1")] == ["hi", "ab"]


async def test_a_call_says_what_it_is_given(gateway: ScriptedGateway) -> None:
    gateway.answers = [told(202, ACCEPTED)]
    await gateway.client(token="t").start(
        "a/b?c",
        [{"type": "text", "text": "hi"}],
        run_id=None,
        session_id="s",
        if_busy="reject",
        max_steps=3,
        priority="background",
        act_as={"user_id": "ann", "tenant_id": "acme"},
        context={"plan": "pro"},
    )
    (request,) = gateway.requests
    assert gateway.asked() == ["POST /v1/agents/a%2Fb%3Fc/runs"]
    assert httpx2.Response(200, content=request.read()).json() == {
        "input": [{"type": "text", "text": "hi"}],
        "sessionId": "s",
        "ifBusy": "reject",
        "maxSteps": 3,
        "priority": "background",
        "as": {"userId": "ann", "tenantId": "acme"},
        "context": {"plan": "pro"},
    }
    assert request.headers["authorization"] == "Bearer t"


async def test_an_option_that_there_is_none_of_is_named(gateway: ScriptedGateway) -> None:
    with pytest.raises(TypeError, match="no option 'sesion_id'"):
        gateway.client().stream("talker", input="hi", sesion_id="s")  # type: ignore[call-arg]
    assert gateway.requests == []


async def test_a_token_may_come_from_a_function(gateway: ScriptedGateway) -> None:
    async def fresh() -> str:
        return "fresh"

    gateway.answers = [told(200, {"items": [], "nextCursor": None})]
    assert await gateway.client(token=fresh).agents() == []
    assert gateway.header("authorization") == ["Bearer fresh"]


async def test_secrets_are_shown_nowhere(gateway: ScriptedGateway) -> None:
    gateway.answers = [lost(), refused(401, "UNAUTHENTICATED", reason="invalid")]
    client = Client("http://ann:hunter2@gateway/", token="s3cret", http=gateway.client()._transport.http)
    stream = client.stream("talker", input="a prompt")
    with pytest.raises(RunyardError) as raised:
        await stream.open()
    shown = "".join(
        map(repr, (client, client._transport, stream, stream._opening, raised.value, raised.value.__cause__))
    )
    for secret in ("hunter2", "s3cret", "a prompt"):
        assert secret not in shown
    with pytest.raises(ValueError, match="no header can carry") as refusal:
        await Client("http://gateway", token="s3cret\n", http=client._transport.http).agents()
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize(
    "url", ["gateway:8000", "ftp://gateway", "", "http://", "http://gateway:99999", "http://gateway:x"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"http://|[Pp]ort"):
        Client(url)
