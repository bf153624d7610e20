"""What a model call costs, from the price list that genai-prices ships; nothing is fetched."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from runyard_workers.providers.model import DEMO_MODEL, Usage

_NANO = Decimal("1e-9")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """`unpriced`: a part of it had no known price and counts as 0."""

    amount: Decimal = Decimal(0)
    currency: str = "USD"
    unpriced: bool = False

    def __add__(self, other: Self) -> Self:
        return type(self)(
            amount=self.amount + other.amount, currency=self.currency, unpriced=self.unpriced or other.unpriced
        )

    def to_dict(self) -> dict[str, Any]:
        """`{"amount": 0.002235, "currency": "USD", "unpriced": false}`, rounded to billionths."""
        return {
            "amount": float(self.amount.quantize(_NANO)),
            "currency": self.currency,
            "unpriced": self.unpriced,
        }


def load() -> None:
    """Read the price list: it takes a moment, once. Without this the first `cost` does it."""
    import genai_prices.data  # noqa: F401 imported for its cost


def cost(model: str, usage: Usage) -> Cost:
    """The price of one call, by the name of the Anthropic model that answered. An unknown model is unpriced."""
    if model == DEMO_MODEL:
        return Cost(unpriced=True)
    import genai_prices

    # In genai-prices `input_tokens` is all input, in the Messages API what no cache wrote or gave.
    counts = genai_prices.Usage(
        input_tokens=usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens,
        cache_write_tokens=usage.cache_creation_input_tokens,
        cache_read_tokens=usage.cache_read_input_tokens,
        output_tokens=usage.output_tokens,
    )
    try:
        price = genai_prices.calc_price(counts, model_ref=model, provider_id="anthropic")
    except LookupError:
        return Cost(unpriced=True)
    return Cost(amount=price.total_price)
