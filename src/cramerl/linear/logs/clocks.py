"""How often episodes are cut, by a clock: the weights that undo what dropping their last rows does.

The last row of a cut episode has no next row and is dropped, but a last row where the return ended is kept. So among
the rows at which an episode can be cut those that ended are too many. If cutting does not depend on what would have
happened, a share 1 - h of the rows that go on is kept, and the weight 1 - h for the rows that end is fair. The share h
depends on a clock: the step of the episode, the time (a log that ends on one day for all), or nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats

# Most values of a clock: a clock with more is shared by too few rows to tell anything.
_MOST_VALUES = 1_000_000
# Into how many spans a clock is divided, for shares that change gradually.
_SPANS = (4, 16, 64)


class Tally(NamedTuple):
    """At each value of a clock: rows that go on and have a next row, rows that are cut, and rows that ended."""

    values: Floats
    kept: Floats
    cut: Floats
    ended: Floats

    @classmethod
    def empty(cls) -> Tally:
        """Of no rows."""
        return cls(*(np.empty(0) for _ in cls._fields))

    def add(self, values: Floats, cut: NDArray[np.bool_], ended: NDArray[np.bool_]) -> Tally:
        """With more rows. A clock with too many values keeps no more than show that it has."""
        joined, inverse = np.unique(np.concatenate([self.values, values]), return_inverse=True)
        before, new = inverse[: len(self.values)], inverse[len(self.values) :]

        def count(rows: NDArray[np.bool_], old: Floats) -> Floats:
            found = np.bincount(new[rows], minlength=len(joined)).astype(np.float64)
            found[before] += old
            return found[: _MOST_VALUES + 1]

        kept = count(~cut & ~ended, self.kept)
        return Tally(joined[: _MOST_VALUES + 1], kept, count(cut, self.cut), count(ended, self.ended))

    @property
    def usable(self) -> bool:
        """Whether the clock has few enough values."""
        return len(self.values) <= _MOST_VALUES

    def at_risk(self) -> Tally:
        """At the values where rows go on."""
        return Tally(*(array[self.kept + self.cut > 0] for array in self))


class Shares(NamedTuple):
    """The share of rows that are cut: at some values of a clock and at all others, or between values of a clock."""

    clock: str
    """"step", "time" or "constant"."""
    values: Floats
    shares: Floats
    rest: float = 0.0
    spans: bool = False
    """Whether a share holds from its value to the next, not at its value alone."""

    def at(self, values: Floats) -> Floats:
        """The share at each value."""
        if not len(self.values):
            return np.full(len(values), self.rest)
        if self.spans:
            return self.shares[np.maximum(np.searchsorted(self.values, values, side="right") - 1, 0)]
        place = np.minimum(np.searchsorted(self.values, values), len(self.values) - 1)
        return np.where(self.values[place] == values, self.shares[place], self.rest)


def choose_shares(step: Tally, time: Tally | None) -> Shares:
    """The clock and the shares with the highest likelihood of the cuts, penalised by BIC.

    A clock has a share of its own for each of its values, or for spans of them, or only for those where the share
    stands out and one for all others; with none that stands out it is a constant.
    """
    candidates = _candidates("step", step)
    if time is not None and time.usable:
        candidates += _candidates("time", time)
    return max(candidates, key=lambda pair: pair[1])[0]


def _candidates(clock: str, tally: Tally) -> list[tuple[Shares, float]]:
    """Shares by a clock, with their penalised likelihoods; the simplest first, which wins if it is as good."""
    tally = tally.at_risk()
    every = np.ones(len(tally.values), dtype=bool)
    found = [_fitted("constant", tally, ~every), _fitted(clock, tally, _standing_out(tally))]
    for spans in _SPANS:
        if spans < len(every):
            shares, score = _fitted(clock, *_grouped(tally, spans))
            found.append((shares._replace(spans=True), score))
    return [*found, _fitted(clock, tally, every)]


def _grouped(tally: Tally, spans: int) -> tuple[Tally, NDArray[np.bool_]]:
    """The counts in spans of values with about as many rows each, under the first value of each; all on their own."""
    total = np.cumsum(tally.kept + tally.cut)
    group = np.minimum(total * spans / total[-1], spans - 1).astype(np.intp)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    kept, cut, ended = (np.add.reduceat(counts, starts) for counts in tally[1:])
    return Tally(tally.values[starts], kept, cut, ended), np.ones(len(starts), dtype=bool)


def _fitted(clock: str, tally: Tally, own: NDArray[np.bool_]) -> tuple[Shares, float]:
    """The shares with one of its own at the values ``own``, and their penalised likelihood."""
    rest = _share(tally.kept[~own].sum(), tally.cut[~own].sum())
    shares = tally.cut[own] / np.maximum(1, tally.kept[own] + tally.cut[own])
    likelihood = _likelihood(tally.kept[own], tally.cut[own], shares).sum()
    likelihood += _likelihood(tally.kept[~own].sum(), tally.cut[~own].sum(), rest)
    # Which of the values stand out has to be said too, unless it is all of them.
    named = own.sum() * np.log(len(own)) if not own.all() else 0.0
    penalty = 0.5 * (own.sum() + (not own.all())) * np.log((tally.kept + tally.cut).sum()) + named
    if own.all():
        rest = _share(tally.kept.sum(), tally.cut.sum())
    return Shares(clock, tally.values[own], shares, rest), float(likelihood - penalty)


def _standing_out(tally: Tally) -> NDArray[np.bool_]:
    """The values at which a share of its own is worth its price against that of all others that do not stand out."""
    total = tally.kept + tally.cut
    price = 0.5 * np.log(total.sum()) + np.log(len(total))
    own = np.zeros(len(total), dtype=bool)
    alone = _likelihood(tally.kept, tally.cut, tally.cut / np.maximum(1, total))
    for _ in range(20):
        rest = _share(tally.kept[~own].sum(), tally.cut[~own].sum())
        found = alone - _likelihood(tally.kept, tally.cut, rest) > price
        if (found == own).all():
            break
        own = found
    return own


def _share(kept: float, cut: float) -> float:
    return float(cut / (kept + cut)) if kept + cut else 0.0


def _likelihood(kept: Floats | float, cut: Floats | float, share: Floats | float) -> Floats:
    """Of so many rows kept and cut, with zero times the logarithm of zero as zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.where(np.asarray(n) > 0, n * np.log(p), 0.0) for n, p in ((kept, 1 - share), (cut, share))]
    return parts[0] + parts[1]
