"""Returns that were seen in a log, from each row to the end of its episode."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats
from cramerl._checks import require_log_discount
from cramerl.linear.logs.episodes import Episodes
from cramerl.linear.logs.log import Log

# Returns that are kept as a sample.
_MOST_SAMPLED = 100_000
# Discount of what a cut hides below which the return before it is known.
_LITTLE_LEFT = 0.01
# The same, below which the return before it says where atoms belong.
_HALF_LEFT = 0.5
# What stands for the logarithm of a discount of zero.
_LEAST_LOG = -1e6


class SeenReturns(NamedTuple):
    """The returns that are known: in complete episodes, and so long before a cut that what it hides counts little."""

    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    """Rows with a known return."""
    low: float
    """Smallest return of these rows; NaN if there are none."""
    high: float
    start_values: Floats
    """(episodes,) returns of the first rows of complete episodes."""
    sample: Floats
    """Returns of these rows, and of those that have gained at least half of theirs; evenly thinned if very many."""
    truncated_share: float
    """Share of all episodes that are cut."""


def realised_returns(block: Episodes, discount: float | None) -> tuple[Floats, NDArray[np.bool_]]:
    r"""(n,) discounted rewards from each row to the end of its episode in the log, and whether that is all of them.

    .. math:: G_t = r_t + \gamma_t G_{t+1}

    It is the whole return where the end of the episode is in the log.

    Args:
        block: whole episodes.
        discount: a number in [0, 1]; not used, and None is allowed, where the log has a column of discounts.
    """
    returns, factors = block.rewards.astype(np.float64), row_discounts(block, discount)
    left = _rows_left(block.step)
    # G_t from the next 2^k rewards and their discounts becomes that from twice as many.
    rows, width = np.flatnonzero(left >= 1), 1
    while len(rows):
        returns[rows] += factors[rows] * returns[rows + width]
        factors[rows] *= factors[rows + width]
        width *= 2
        rows = rows[left[rows] >= width]
    return returns, block.complete


def seen_returns(log: Log, discount: float | None) -> SeenReturns:
    """The returns that a log shows."""
    count, low, high, starts, sample = 0, np.inf, -np.inf, [np.empty(0)], _Sample()
    for block in log.blocks():
        returns, whole = realised_returns(block, discount)
        starts.append(returns[whole & (block.step == 0)])
        left = discounts_left(block, discount)
        known = whole | (left < _LITTLE_LEFT)
        count += int(known.sum())
        low, high = returns[known].min(initial=low), returns[known].max(initial=high)
        sample.add(returns[whole | (left < _HALF_LEFT)])
    low, high = (float(low), float(high)) if count else (np.nan, np.nan)
    share = log.counts.truncated / log.counts.episodes
    return SeenReturns(count, low, high, np.concatenate(starts), sample.values, share)


class _Sample:
    """Every so many values of a long sequence."""

    def __init__(self):
        self.values, self._every, self._passed = np.empty(0), 1, 0

    def add(self, values: Floats) -> None:
        """Go on with these values."""
        self.values = np.concatenate([self.values, values[-self._passed % self._every :: self._every]])
        self._passed += len(values)
        while len(self.values) > _MOST_SAMPLED:
            self.values, self._every = self.values[::2], 2 * self._every


def row_discounts(block: Episodes, discount: float | None) -> Floats:
    """(n,) the discount of what follows each row: the log's own where it has a column of them."""
    if block.discounts is not None:
        return block.discounts.astype(np.float64)
    return np.full(len(block.rewards), require_log_discount(discount))


def discounts_left(block: Episodes, discount: float | None) -> Floats:
    """(n,) the product of the discounts from each row to the end of its episode in the log."""
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(row_discounts(block, discount)), _LEAST_LOG)
    last = last_rows(block.step)
    after = np.cumsum(logs[::-1])[::-1]
    beyond = np.append(after, 0.0)[last + 1]
    return np.exp(np.maximum(after - np.repeat(beyond, np.diff(last, prepend=-1)), -700.0))


def so_far(combine: np.ufunc, values: NDArray[Any], step: NDArray[np.intp]) -> NDArray[Any]:
    """(n,) the values of each row's episode up to this row, combined by an associative function."""
    found, width = values.copy(), 1
    rows = np.flatnonzero(step >= 1)
    while len(rows):
        found[rows] = combine(found[rows - width], found[rows])
        width *= 2
        rows = rows[step[rows] >= width]
    return found


def last_rows(step: NDArray[np.intp]) -> NDArray[np.intp]:
    """(episodes,) the last row of each episode."""
    firsts = np.flatnonzero(step == 0)
    return np.append(firsts[1:], len(step)) - 1 if len(firsts) else firsts


def _rows_left(step: NDArray[np.intp]) -> NDArray[np.intp]:
    """(n,) how many rows of the same episode follow."""
    lasts = last_rows(step)
    lengths = step[lasts] + 1
    return np.repeat(step[lasts], lengths) - step
