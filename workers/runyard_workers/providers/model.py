"""What the loop and every model provider exchange."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

from runyard.errors import ModelNotConfigured

LOOP_KEYS = frozenset({"model", "messages", "system", "tools", "max_tokens", "stream"})
"""Keys of a request that the loop decides; an agent's `provider_options` must not hold them."""

DEMO_MODEL = "demo"
"""The model name in the demo model's turns; it has no price."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRequest:
    """One model call.

    `model` has no provider prefix. `messages` and `tools` have the shape of the Messages API, tools as
    `{"name", "description", "input_schema"}`. `options` are further keys of the provider's request body.

    Raises:
        ModelNotConfigured: `options` holds a key that the loop decides.
    """

    model: str
    system: str | None
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    max_tokens: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if taken := LOOP_KEYS & self.options.keys():
            names = ", ".join(sorted(taken))
            raise ModelNotConfigured(f"provider_options must not hold {names}: the agent's own settings decide them")


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens as the Messages API counts them: `input_tokens` excludes those written to or read from a cache.

    `output_tokens_estimated` is the part of `output_tokens` that no provider counted, from calls that were broken off.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens_estimated: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_creation_input_tokens=self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            cache_read_input_tokens=self.cache_read_input_tokens + other.cache_read_input_tokens,
            output_tokens_estimated=self.output_tokens_estimated + other.output_tokens_estimated,
        )

    def to_dict(self) -> dict[str, int]:
        """The shape of results, rows and the API: `{"input_tokens": 27, "output_tokens": 47, ...}`, all four keys, and
        `output_tokens_estimated` if it is not 0.
        """
        counted = {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_creation_input_tokens": self.cache_creation_input_tokens,
            "cache_read_input_tokens": self.cache_read_input_tokens,
        }
        if self.output_tokens_estimated:
            counted["output_tokens_estimated"] = self.output_tokens_estimated
        return counted

    @classmethod
    def from_dict(cls, counts: Mapping[str, int]) -> Self:
        """The opposite of `to_dict`; a count that is absent is 0."""
        return cls(
            input_tokens=counts.get("input_tokens", 0),
            output_tokens=counts.get("output_tokens", 0),
            cache_creation_input_tokens=counts.get("cache_creation_input_tokens", 0),
            cache_read_input_tokens=counts.get("cache_read_input_tokens", 0),
            output_tokens_estimated=counts.get("output_tokens_estimated", 0),
        )


class TextDelta(NamedTuple):
    """A piece of answer text: clean (`runyard.text`) and not empty."""

    text: str


class ThinkingDelta(NamedTuple):
    """A piece of reasoning: clean (`runyard.text`) and not empty."""

    text: str


class Activity(NamedTuple):
    """Something came that shows no text.

    `ping`: it only shows a living connection (a ping, a comment, a part of an event) and not a working model.
    """

    ping: bool


class UsageSoFar(NamedTuple):
    """What the call has cost up to here. If the stream fails or is broken off, the last of these is what is paid.

    The turn's own usage includes it.
    """

    usage: Usage
    model: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A whole assistant turn, the last event of a stream.

    `content` holds the blocks as the model produced them, ready to be stored and sent back; its text blocks equal the
    text deltas. `broken_inputs` maps the id of each `tool_use` block whose input could not be read (the block then has
    the input `{}`) to what the model should be told: such a call must not run.
    """

    content: list[dict[str, Any]]
    stop_reason: str
    usage: Usage
    model: str
    broken_inputs: Mapping[str, str]


ModelEvent = TextDelta | ThinkingDelta | Activity | UsageSoFar | Turn


class Models(Protocol):
    """`registry.Providers`, as far as a step needs it."""

    def resolve(self, model: str | None) -> "tuple[Provider, str]":
        """The provider, and its own name of the model; None: an agent that names none.

        Raises:
            ModelNotConfigured: there is none.
        """
        ...


class Provider(Protocol):
    """`name`: as traces call it, one of OpenTelemetry's `gen_ai.provider.name` if there is one."""

    @property
    def name(self) -> str: ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Call the model: yields deltas as they come, then exactly one `Turn`.

        Read it inside `contextlib.aclosing`, so that a reader that is cancelled or stops closes the provider's
        connection at once. It never ends without a turn. It does not watch for silence: the reader does.

        Raises:
            ProviderError: the provider refused, failed or cut its stream.
            ModelNotConfigured: a setting is missing or unusable.
        """
        ...
