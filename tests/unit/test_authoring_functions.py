"""`@function`, and what it raises for its callers."""

import asyncio
from typing import Any

import pytest

from runyard import Refused, RunContext, agent, function, tool
from runyard.authoring.errors import FIELDS_MAX_BYTES, OWN_FIELDS, AuthoringError
from runyard.authoring.functions import Function
from runyard.authoring.json_values import Unserializable
from runyard.authoring.tools import Tool
from runyard.terminal import failure_body


@function
def order_status(ctx: RunContext, order: str, verbose: bool = False) -> dict[str, str]:
    """Tell where an order is.

    Args:
        order: Its number.
    """
    return {"order": order}


def test_it_is_a_tool_that_can_be_called() -> None:
    assert isinstance(order_status, Function)
    assert isinstance(order_status, Tool)
    assert (order_status.queue, order_status.auth, order_status.internal) == ("default", "user", False)
    assert order_status(None, "A-17") == {"order": "A-17"}
    assert agent(tools=[order_status]).manifest("it")["tools"][0]["name"] == "order_status"


def test_a_gateway_learns_what_it_takes_and_who_may_call_it() -> None:
    assert order_status.manifest() == {
        "name": "fn:order_status",
        "kind": "function",
        "auth": "user",
        "internal": False,
        "queue": "default",
        "priority": "interactive",
        "maxRunning": None,
        "description": "Tell where an order is.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "order": {"type": "string", "description": "Its number."},
                "verbose": {"type": "boolean"},
            },
            "required": ["order"],
        },
        "idempotent": False,
        "timeoutS": 120,
    }


def test_its_options_are_in_its_manifest() -> None:
    @function(
        name="it",
        description="Does it.",
        timeout_s=5,
        queue="slow",
        priority="background",
        max_running=2,
        idempotent=True,
        internal=True,
        auth="admin",
    )
    async def other() -> None:
        """Not this."""

    assert other.is_async
    assert other.manifest() == {
        **order_status.manifest(),
        "name": "fn:it",
        "auth": "admin",
        "internal": True,
        "queue": "slow",
        "priority": "background",
        "maxRunning": 2,
        "description": "Does it.",
        "inputSchema": {"type": "object", "properties": {}},
        "idempotent": True,
        "timeoutS": 5,
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"auth": "nobody"}, "function 'it': auth must be 'user', 'admin' or 'public', not 'nobody'"),
        ({"internal": "no"}, "internal must be True or False, not 'no'"),
        ({"auth": "public", "internal": True}, "internal=True contradicts auth='public'"),
        ({"queue": "a.b"}, "function 'it': queue must be"),
        ({"priority": "urgent"}, "function 'it': priority must be 'interactive' or 'background', not 'urgent'"),
        ({"max_running": 0}, "function 'it': max_running must be a whole number from 1 on, not 0"),
        ({"timeout_s": 0}, "function 'it': timeout_s"),
        ({"name": "an order"}, "function 'an order': a name is"),
    ],
)
def test_options_that_cannot_be_are_refused(options: Any, words: str) -> None:
    def it() -> None:
        pass

    with pytest.raises(AuthoringError) as error:
        function(**options)(it)
    assert words in str(error.value)


def test_a_parameter_that_cannot_be_is_named_with_its_function() -> None:
    with pytest.raises(AuthoringError, match="function 'it', parameter 'what': no type annotation"):

        @function
        def it(what):  # type: ignore[no-untyped-def]
            pass


def test_a_tool_is_made_once() -> None:
    with pytest.raises(AuthoringError, match="function 'order_status': it is a tool already"):
        function(order_status)
    with pytest.raises(AuthoringError, match="tool 'order_status': it is a tool already"):
        tool(order_status)


# Refused -----------------------------------------------------------------------------------------------------------


def test_a_refusal_has_what_its_caller_is_told() -> None:
    refused = Refused("ORDER_UNKNOWN", "no such order\0", status=404, order="A-17", seen={1})
    assert (refused.code, refused.message, refused.status) == (
        "ORDER_UNKNOWN",
        "no such order\N{REPLACEMENT CHARACTER}",
        404,
    )
    assert (refused.fields, refused.retryable) == ({"order": "A-17", "seen": [1]}, False)
    assert str(refused) == "ORDER_UNKNOWN: no such order\N{REPLACEMENT CHARACTER}"
    assert Refused("NO", "").status == 400


@pytest.mark.parametrize("code", ["", "lower", "With Space", "1ST", "A" * 65, "OK\n", None])
def test_a_code_is_upper_snake(code: Any) -> None:
    with pytest.raises(ValueError, match="a code is written like ORDER_UNKNOWN"):
        Refused(code, "no")


@pytest.mark.parametrize("status", [200, 302, 399, 600, "404", None])
def test_a_status_is_an_errors(status: Any) -> None:
    with pytest.raises(ValueError, match="a status is one of HTTP's errors, 400 to 599"):
        Refused("NO", "no", status=status)


def test_a_field_is_json_of_a_bounded_size() -> None:
    with pytest.raises(Unserializable):
        Refused("NO", "no", loop=asyncio.Event())
    with pytest.raises(ValueError, match="larger than 65536 bytes"):
        Refused("NO", "no", much="x" * FIELDS_MAX_BYTES)


@pytest.mark.parametrize("name", sorted(OWN_FIELDS))
def test_a_field_has_no_name_that_every_errors_body_uses(name: str) -> None:
    with pytest.raises(ValueError, match=f"the field '{name}' is one that every error has"):
        Refused("NO", "no", **{name: 1})


def test_the_names_that_a_body_uses_are_known() -> None:
    result = dict.fromkeys(["runId", "invocationId", "streamId", "status", "steps", "usage", "cost", "errors"])
    body = failure_body(result=result, error={"code": "NO", "message": "", "retryable": False}, request_id="req_1")
    assert set(body["error"]) == OWN_FIELDS | {"code", "message", "retryable", "status"}
