"""What a call costs: the price list's numbers, applied to counts as the Messages API gives them."""

from decimal import Decimal

import pytest

from runyard_workers.prices import Cost, cost
from runyard_workers.providers.model import Usage

# Dollars per million tokens of claude-sonnet-5-5: input, output, cache write, cache read.
INPUT, OUTPUT, WRITE, READ = Decimal(2), Decimal(10), Decimal("2.5"), Decimal("0.1")
MILLION = 1_000_000


@pytest.mark.parametrize("model", ["claude-sonnet-5-5", "claude-sonnet-5-5-20260901"])
def test_each_kind_of_token_has_its_price(model: str) -> None:
    usage = Usage(input_tokens=27, output_tokens=47, cache_creation_input_tokens=1000, cache_read_input_tokens=20_000)
    expected = (27 * INPUT + 47 * OUTPUT + 1000 * WRITE + 20_000 * READ) / MILLION
    assert cost(model, usage) == Cost(amount=expected)


def test_cached_tokens_are_not_paid_twice() -> None:
    assert cost("claude-sonnet-5-5", Usage(cache_read_input_tokens=MILLION)).amount == READ
    assert cost("claude-sonnet-5-5", Usage(cache_creation_input_tokens=MILLION)).amount == WRITE
    assert cost("claude-sonnet-5-5", Usage()).amount == 0


@pytest.mark.parametrize("model", ["demo", "demo:", "", "claude-sonnet-99", "gpt-5.5"])
def test_a_model_without_a_known_price(model: str) -> None:
    assert cost(model, Usage(input_tokens=1000, output_tokens=1000)) == Cost(unpriced=True)


def test_costs_add_up_and_stay_honest() -> None:
    priced, unpriced = Cost(amount=Decimal("0.1")), Cost(unpriced=True)
    assert priced + priced + priced == Cost(amount=Decimal("0.3"))
    assert priced + unpriced == unpriced + priced == Cost(amount=Decimal("0.1"), unpriced=True)
    assert sum([priced, priced], Cost()).amount == Decimal("0.2")


def test_the_shape_that_is_stored_and_sent() -> None:
    third = Cost(amount=Decimal(1) / 3)
    assert third.to_dict() == {"amount": 0.333333333, "currency": "USD", "unpriced": False}
    assert Cost(amount=Decimal(12_345_678)).to_dict()["amount"] == 12_345_678.0
