"""What can be wrong in an author's file or in what a model sends to a tool, and how an author's code refuses a call."""

import re
from typing import Any

import orjson

from runyard.authoring.issues import as_text
from runyard.authoring.json_values import to_json
from runyard.text import clean_text

CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
FIELDS_MAX_BYTES = 65_536
OWN_FIELDS = frozenset({"requestId", "runId", "invocationId", "streamId", "steps", "usage", "cost", "errors"})
"""Fields that the body of every error has besides its code and message."""


class AuthoringError(Exception):
    """An agent's file asks for something that is not possible. It is raised as the file is imported and names the tool
    and the parameter.
    """


class InvalidToolInput(Exception):
    """A model's arguments do not fit the tool: `Invalid tool input: q: expected string, got number; ...`.

    The message goes back to the model as an is_error result, so it names what to change and quotes no large values.
    `issues` has the same by parameter; the key "" stands for the arguments as a whole.
    """

    def __init__(self, issues: dict[str, str]) -> None:
        super().__init__(f"Invalid tool input: {as_text(issues)}")
        self.issues = issues


class Refused(Exception):
    """A tool or function refuses a call, with a reason for whoever made it.

        raise Refused("ORDER_UNKNOWN", "There is no such order", status=404, order=number)

    The caller of a function gets it as the answer: this status, and the body `{"error": {"code": "ORDER_UNKNOWN",
    "message": "There is no such order", "order": "A-17", ...}}`. A model reads `ORDER_UNKNOWN: There is no such order`.
    """

    def __init__(self, code: str, message: str, *, status: int = 400, retryable: bool = False, **fields: Any) -> None:
        """Refuse with a code, a message and further fields.

        Args:
            code: Upper case with underscores, like ORDER_UNKNOWN.
            message: What the caller, or the model, reads.
            status: The HTTP status that a function's caller gets, 400 to 599.
            retryable: Whether the same call may succeed later.
            fields: Further fields of the answer; they become JSON as a tool's return value does.

        Raises:
            ValueError: the code or the status is not of that form, a field has a name that every error's body uses, or
                the fields are too large.
            Unserializable: a field has no JSON form.
        """
        if not isinstance(code, str) or CODE.fullmatch(code) is None:
            raise ValueError(f"Refused: a code is written like ORDER_UNKNOWN, not {code!r:.80}")
        if not isinstance(status, int) or not 400 <= status <= 599:  # noqa: PLR2004 - HTTP's errors
            raise ValueError(f"Refused: a status is one of HTTP's errors, 400 to 599, not {status!r:.80}")
        if taken := sorted(OWN_FIELDS & fields.keys()):
            raise ValueError(f"Refused: the field {taken[0]!r} is one that every error has")
        self.code = code
        self.message = clean_text(str(message))
        self.status = int(status)
        self.retryable = bool(retryable)
        self.fields: dict[str, Any] = to_json(fields)
        if len(orjson.dumps([self.message, self.fields])) > FIELDS_MAX_BYTES:
            raise ValueError(f"Refused: message and fields are larger than {FIELDS_MAX_BYTES} bytes")
        super().__init__(f"{code}: {self.message}")
