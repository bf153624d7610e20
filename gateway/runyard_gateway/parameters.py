"""What a call takes besides its body: query parameters and headers, each declared once.

A declaration checks requests, and the OpenAPI document is made from it.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl

from starlette.requests import Request

from runyard.errors import InvalidArgs
from runyard.text import clean_text, is_clean
from runyard_gateway.bodies import UNSTORABLE_TEXT

METADATA = "metadata."
METADATA_FILTERS_MAX = 10
DIGITS_MAX = 10
"""The most digits of a whole number. `int` itself refuses only thousands of them, with an error of its own."""

_METADATA_KEY = re.compile(r'[^"\\]{1,256}', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Parameter:
    name: str
    description: str
    place: Literal["query", "header"] = "query"

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string"}

    def covers(self, name: str) -> bool:
        """Whether a request's parameter of this name is this one."""
        return name == self.name

    def given(self, request: Request) -> str | None:
        return request.query_params.get(self.name)


@dataclass(frozen=True, kw_only=True)
class Text(Parameter):
    def read(self, request: Request) -> str | None:
        """Raises `InvalidArgs`, naming the parameter, if no store could hold it."""
        given = self.given(request)
        if given is not None and not is_clean(given):
            raise InvalidArgs(f"{self.name}: {UNSTORABLE_TEXT}", fields=[self.name])
        return given


@dataclass(frozen=True, kw_only=True)
class WholeNumber(Parameter):
    default: int
    low: int
    high: int

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high, "default": self.default}

    def read(self, request: Request) -> int:
        """Raises `InvalidArgs`, naming the parameter, if it is not a whole number within the bounds."""
        given = self.given(request)
        if given is None:
            return self.default
        is_whole = given.isascii() and given.isdigit() and len(given) <= DIGITS_MAX
        if not is_whole or not self.low <= int(given) <= self.high:
            raise InvalidArgs(f"{self.name} must be a whole number from {self.low} to {self.high}", fields=[self.name])
        return int(given)


@dataclass(frozen=True, kw_only=True)
class Choice(Parameter):
    choices: tuple[str, ...]
    default: str | None = None

    @property
    def schema(self) -> dict[str, Any]:
        default = {} if self.default is None else {"default": self.default}
        return {"type": "string", "enum": list(self.choices), **default}

    def read(self, request: Request) -> str | None:
        given = self.given(request)
        if given is None:
            return self.default
        if given not in self.choices:
            raise InvalidArgs(f"{self.name} must be one of {', '.join(self.choices)}", fields=[self.name])
        return given


@dataclass(frozen=True, kw_only=True)
class Flag(Parameter):
    """`?force` and `?force=true`."""

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": ["", "true", "false"], "default": "false"}

    def read(self, request: Request) -> bool:
        """Raises `InvalidArgs` if it is neither true nor false."""
        given = self.given(request)
        if given not in {None, "", "true", "false"}:
            raise InvalidArgs(f"{self.name} must be true or false", fields=[self.name])
        return given in {"", "true"}


@dataclass(frozen=True, kw_only=True)
class MetadataFilter(Parameter):
    """`metadata.customer=c_1&metadata.tries=3` -> `{"customer": "c_1", "tries": "3"}`."""

    name: str = field(default=f"{METADATA}{{key}}", init=False)

    def covers(self, name: str) -> bool:
        return name.startswith(METADATA)

    def read(self, request: Request) -> dict[str, str]:
        """The values by their keys.

        Raises:
            InvalidArgs: a key is empty, has a quote or a backslash in it, or is given twice; there are too many; or no
                store could hold one.
        """
        given = [(name, value) for name, value in request.query_params.multi_items() if self.covers(name)]
        names = [name for name, _ in given]
        if wrong := sorted(name for name in names if _METADATA_KEY.fullmatch(name.removeprefix(METADATA)) is None):
            raise InvalidArgs(f"{wrong[0]} names no field of metadata", fields=wrong)
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidArgs(f"{twice[0]} is given twice", fields=twice)
        if len(given) > METADATA_FILTERS_MAX:
            raise InvalidArgs(
                f"at most {METADATA_FILTERS_MAX} parameters may begin with {METADATA}", fields=sorted(names)
            )
        if unclean := sorted(clean_text(name) for name, value in given if not is_clean(name + value)):
            raise InvalidArgs(f"{unclean[0]}: {UNSTORABLE_TEXT}", fields=unclean)
        return {name.removeprefix(METADATA): value for name, value in given}


def check_query(request: Request, known: tuple[Parameter, ...]) -> None:
    """Raises `InvalidArgs` for a query parameter that is not known, and for a query that is not UTF-8."""
    try:
        parse_qsl(request.url.query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise InvalidArgs("the query is not UTF-8") from None
    of_query = [parameter for parameter in known if parameter.place == "query"]
    unknown = sorted(name for name in request.query_params if not any(it.covers(name) for it in of_query))
    if unknown:
        raise InvalidArgs(f'unknown parameter "{unknown[0]}"', fields=unknown)


CURSOR = Text(name="cursor", description="`nextCursor` of the previous page; it is valid for the same list only.")
SINCE = Text(
    name="since",
    description="The number of the last frame that the reader has; a valid `Last-Event-ID` counts more.",
)
LAST_EVENT_ID = Parameter(
    place="header",
    name="Last-Event-ID",
    description="The last frame that the reader has: the stream goes on after it. Anything but a number is ignored.",
)
PREFER = Parameter(
    place="header",
    name="Prefer",
    description="`wait=N` (RFC 7240) holds the answer for N seconds, 60 at most, until the invocation has ended.",
)
IDEMPOTENCY_KEY = Parameter(
    place="header",
    name="Idempotency-Key",
    description="1 to 255 printable ASCII characters: calls with the same key are accepted once.",
)
