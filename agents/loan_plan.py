"""A function that computes what a loan costs, year by year. It is called over HTTP and needs no model."""

from decimal import ROUND_HALF_UP, Decimal

from runyard import Refused, RunContext, function

CENT = Decimal("0.01")
MONTHS = 12
AMOUNT_MAX = 1_000_000_000
YEARS_MAX = 50
RATE_MAX = 100


@function(idempotent=True)
def loan_plan(ctx: RunContext, amount: float, years: int, rate_percent: float) -> dict[str, float]:
    """Plan a loan that is paid back in equal monthly payments.

    Args:
        amount: How much is borrowed, for example 250000.
        years: In how many years it is paid back, 1 to 50.
        rate_percent: The interest a year in percent, for example 3.9.
    """
    for name, value, low, high in (
        ("amount", amount, MONTHS, AMOUNT_MAX),
        ("years", years, 1, YEARS_MAX),
        ("rate_percent", rate_percent, 0, RATE_MAX),
    ):
        if not low <= value <= high:
            raise Refused("NO_SUCH_LOAN", f"{name} must be from {low:,} to {high:,}", parameter=name)
    borrowed = owed = _cents(Decimal(str(amount)))
    rate = Decimal(str(rate_percent)) / 100 / MONTHS
    payment, paid = _payment(owed, rate, years * MONTHS), Decimal(0)
    for month in range(1, years * MONTHS + 1):
        interest = _cents(owed * rate)
        # The last one pays what is left: each payment is rounded to a cent.
        pays = owed + interest if month == years * MONTHS else min(payment, owed + interest)
        owed += interest - pays
        paid += pays
        if month % MONTHS == 0:
            ctx.stream.write(f"After year {month // MONTHS}: {owed:,} left to pay\n")
    return {"monthly": float(payment), "total": float(paid), "interest": float(paid - borrowed)}


def _payment(amount: Decimal, rate: Decimal, months: int) -> Decimal:
    """The annuity: what is paid each month so that nothing is left after the last."""
    if rate == 0:
        return _cents(amount / months)
    return _cents(amount * rate / (1 - (1 + rate) ** -months))


def _cents(amount: Decimal) -> Decimal:
    return amount.quantize(CENT, ROUND_HALF_UP)
