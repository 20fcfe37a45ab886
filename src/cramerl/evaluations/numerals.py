"""Numbers as a reader wants them: rounded to what their intervals allow."""

from __future__ import annotations

import math

from cramerl.linear.logs.estimates import Estimate

# Numbers from which on, and decimals past which, powers of ten are shorter.
_LARGE, _MOST_DECIMALS = 1e7, 6
NOTHING = 1e-12
"""What rounding leaves of zero is below this, and is shown as 0."""


def plain(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, all digits before the point, and commas between thousands."""
    if not math.isfinite(value):
        return "not known" if math.isnan(value) else f"{value}"
    if abs(value) < NOTHING:
        return "0"
    return fixed(value, digits - 1 - math.floor(math.log10(abs(value))))


def fixed(value: float, decimals: int) -> str:
    """A number with so many decimals; very large and very small ones with a power of ten."""
    if abs(value) < NOTHING:
        value = 0.0
    if abs(value) >= _LARGE or (abs(value) > 0 and decimals > _MOST_DECIMALS):
        return f"{value:.3g}"
    decimals = min(max(decimals, 0), _MOST_DECIMALS)
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def percent(share: float, decimals: int = 1) -> str:
    """A share in percent."""
    return "not known" if math.isnan(share) else f"{100 * share:.{decimals}f}%"


def decimals_of(estimate: Estimate) -> int:
    """Decimals that show the half-width of an interval with two digits; without one, the value with three."""
    half = 0.5 * (estimate.high - estimate.low)
    size = half if math.isfinite(half) and half > NOTHING else abs(estimate.value) / 10
    return max(0, 1 - math.floor(math.log10(size))) if size > NOTHING else 0


def value_of(estimate: Estimate) -> str:
    """The value of an estimate."""
    return fixed(estimate.value, decimals_of(estimate))


def interval_of(estimate: Estimate) -> str:
    """The ends of its interval; empty without one."""
    if math.isnan(estimate.low):
        return ""
    decimals = decimals_of(estimate)
    return f"{fixed(estimate.low, decimals)} to {fixed(estimate.high, decimals)}"


def percent_estimate(estimate: Estimate) -> str:
    """A probability in percent, and its interval in brackets."""
    if math.isnan(estimate.low):
        return percent(estimate.value)
    return f"{percent(estimate.value)} ({percent(estimate.low)} to {percent(estimate.high)})"
