"""Logged transitions as rows: read, checked, added up to moments, and turned into a linear system."""

# ruff: noqa: N803 (X is the name scikit-learn's users know)
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cramerl._checks import require_finite
from cramerl.linear.operators import Floats
from cramerl.linear.systems import (
    LinearSystem,
    MomentCollector,
    Normalisation,
    add_product,
    compressed_system,
    matrix_free_system,
)
from cramerl.linear.whitening import Whitening
from cramerl.projections import backup
from cramerl.supports import Support

# Numbers in the moments: past this (a gigabyte) `fit` makes passes over the data instead, and `partial_fit` refuses.
MOST_NUMBERS = 125_000_000
# Numbers of a work array of rows: a hundred megabytes, whatever the number of transitions.
_CHUNK_NUMBERS = 12_500_000


class SupportReport(NamedTuple):
    """What the support cuts off.

    Attributes:
        can_clip: share of the transitions for which r + gamma z lies outside the support for some atom z.
        clipped_below: mean mass that one backup moves beyond the lower end (signed masses: the balance).
        clipped_above: the same of the upper end.
        sentence: in plain words.
    """

    can_clip: float
    clipped_below: float
    clipped_above: float
    sentence: str


class Rows(NamedTuple):
    """Transitions in float64: features and next features (n, D), rewards and ended (n,)."""

    features: Floats
    rewards: Floats
    next_features: Floats
    ended: NDArray[np.bool_]

    def parts(self, size: int) -> Iterator[Rows]:
        """Slices of so many rows."""
        for i in range(0, len(self.rewards), size):
            s = slice(i, i + size)
            yield Rows(self.features[s], self.rewards[s], self.next_features[s], self.ended[s])

    def discounts(self, discount: float) -> Floats:
        """(n,) discount of what follows: 0 where the return ends."""
        return np.where(self.ended, 0.0, discount)


class Data:
    """Sums over transitions: all that is kept of them."""

    def __init__(self, support: Support, discount: float, num_features: int):
        self.support, self.discount = support, discount
        self.collector: MomentCollector | None = MomentCollector(support, num_features)
        self.gram, self.total = np.zeros((num_features, num_features)), np.zeros(num_features)
        self.num_samples = 0
        # Next features and a count, by how many atoms the reward takes beyond an end: row K + above, or K - below.
        self.leaving = np.zeros((2 * support.num_atoms + 1, num_features + 1))
        self.ended_outside = np.zeros(2)

    def fits(self, rows: Rows) -> bool:
        """Whether moments can be kept with these rows among them."""
        k, numbers = self.support.num_atoms, self.gram.size
        if self.collector is None or k * k * numbers <= MOST_NUMBERS:
            return self.collector is not None
        return self.collector.count_after(rows.rewards[~rows.ended], self.discount) * numbers <= MOST_NUMBERS

    def add(self, rows: Rows) -> None:
        """Add up what these rows say."""
        x, r, k = rows.features, rows.rewards, self.support.num_atoms
        add_product(self.gram, x, x)
        self.total += x.sum(axis=0)
        self.num_samples += len(x)
        if self.collector is not None:
            ones = np.ones(len(x))
            self.collector.add(x, rows.next_features, r, rows.discounts(self.discount), rows.ended, ones)
        low, high = self.support.v_min, self.support.v_max
        slack = 1e-12 * (high - low)
        moved = self.discount * self.support.atoms
        below = np.searchsorted(moved, low - r - slack)
        above = k - np.searchsorted(moved, high - r + slack, side="right")
        place = np.where(rows.ended, k, k + above - below)
        index = np.flatnonzero(place != k)
        hits = sparse.csr_array((np.ones(len(index)), (place[index], index)), shape=(len(self.leaving), len(r)))
        self.leaving[:, :-1] += hits @ rows.next_features
        self.leaving[:, -1] += hits.sum(axis=1)
        last = r[rows.ended]
        self.ended_outside += (last < low - slack).sum(), (last > high + slack).sum()

    def report(self, weights: Floats, normalisation: Normalisation) -> SupportReport:
        """What the support cuts off of the laws with these weights."""
        k, n, out = self.support.num_atoms, self.num_samples, self.leaving
        even = 0.0 if normalisation == "after" else 1.0 / k
        shape = weights if normalisation == "after" else weights - weights.mean(axis=1, keepdims=True)
        # Atom j is beyond the upper end with a count of K - j or more, beyond the lower end with j + 1 or more.
        beyond = np.cumsum(out[:k], axis=0)[::-1], np.cumsum(out[:k:-1], axis=0)
        below, above = (
            float(np.sum(b[:, :-1] * shape.T) + even * b[:, -1].sum() + ended) / n
            for b, ended in zip(beyond, self.ended_outside, strict=True)
        )
        share = float(out[:, -1].sum() + self.ended_outside.sum()) / n
        ends = f"the support from {self.support.v_min:.6g} to {self.support.v_max:.6g}"
        say = f"No reward in the data can take a return beyond {ends}: nothing clips."
        if share:
            say = f"{100 * share:.2g}% of the transitions can take a return beyond {ends}; a backup clips "
            much = f"{below:.2g} of the mass below and {above:.2g} above on average."
            say += much if max(abs(below), abs(above)) >= 1e-9 else "less than 1e-9 of the mass on average."
        if max(below, above) > 0.01:
            say += " Means and tails are cut short: take a wider support."
        return SupportReport(share, below, above, say)


class LogCertificate(NamedTuple):
    """What can be said of a solution when only data is known, not the process behind it.

    Attributes:
        constant_distance: distance of the constant function to the span of the features, over the data.
        gram_condition: condition number of the features' Gram matrix, columns scaled to the same size.
        lstd_gap: root mean square, over the data, of the difference between the means and those of ordinary LSTD.
        sentences: in plain words.
    """

    constant_distance: float
    gram_condition: float
    lstd_gap: float
    sentences: tuple[str, ...]


def certify(
    data: Data, whitening: Whitening, weights: Floats, normalisation: Normalisation, regularisation: float
) -> LogCertificate | None:
    """Certificate of weights (D, K) found from moments; None where these were too large to keep."""
    if data.collector is None:
        return None
    moments, n, d = data.collector.moments(), data.num_samples, len(data.total)
    vector, base = moments.lstd_vector / n, 0.0
    if normalisation == "affine":  # LSTD of the model u'z + features
        base = float(data.support.atoms.mean())
        vector = vector + base * (moments.discounts @ moments.inflows - data.total) / n
    gram = data.gram / n
    plain = np.linalg.solve(gram + regularisation * np.eye(d) - moments.lstd_matrix / n, vector)
    difference = weights @ data.support.atoms - plain
    gap = float(np.sqrt(max(0.0, difference @ gram @ difference)))
    distance = float(np.sqrt(max(0.0, 1.0 - whitening.constant @ whitening.constant)))
    in_span = distance < 1e-6 or normalisation == "affine"
    say = ["A constant is in the span of the features: every law has total mass one."]
    if not in_span:
        say = [f"No combination of the features is constant (distance {distance:.2g}): add a column of ones."]
    say.append(f"The features' Gram matrix has condition number {whitening.condition:.3g}.")
    if gap <= 1e-8 * max(1.0, abs(data.support.v_min), abs(data.support.v_max)):
        say.append("Mean returns equal those of ordinary LSTD on the same data.")
    else:
        why = "returns beyond the support are clipped" if in_span else "the missing constant, or clipping"
        say.append(f"Mean returns differ from ordinary LSTD's by {gap:.3g} (root mean square): {why}.")
    say.append("How far from the truth is not known: bounds need the process behind the log.")
    return LogCertificate(distance, whitening.condition, gap, tuple(say))


def make_rows(X: Any, rewards: Any, X_next: Any, terminated: Any, num_features: int | None = None) -> Rows:
    """Rows from what a caller gave, checked."""
    features = feature_table("X", X, num_features)
    following = feature_table("X_next", X_next, features.shape[1], finite=False)
    paid = _numbers("rewards", rewards)
    ended = np.zeros(len(features), dtype=bool) if terminated is None else _numbers("terminated", terminated)
    for name, array in (("rewards", paid), ("X_next", following), ("terminated", ended)):
        if array.shape != (features.shape if name == "X_next" else features.shape[:1]):
            raise ValueError(f"{name} must have one entry for each of the {len(features)} rows of X, got {array.shape}")
    if not np.isin(ended, (0, 1)).all():
        raise ValueError(f"terminated must hold True or False, got {ended[~np.isin(ended, (0, 1))][0]}")
    over = ended.astype(bool)
    if over.any() and not np.isfinite(following[over]).all():
        following = np.where(over[:, None], 0.0, following)  # nothing follows: what stands there does not count
    require_finite(X_next=following)
    return Rows(features, paid, following, over)


def feature_table(name: str, values: Any, num_features: int | None, *, finite: bool = True) -> Floats:
    """Rows of features (n, D) in float64."""
    table = _numbers(name, values, finite=finite)
    if table.ndim != 2 or not table.size or num_features not in (None, table.shape[1]):
        wanted = "D" if num_features is None else num_features
        raise ValueError(f"{name} must have shape (n, {wanted}) with at least one row and column, got {table.shape}")
    return table


def _numbers(name: str, values: Any, *, finite: bool = True) -> Floats:
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO" or sparse.issparse(values):
            raise TypeError
        array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        kind = getattr(values, "dtype", "no numbers")
        given = f"{type(values).__name__} ({kind})"
        raise ValueError(f"{name} must be an array of real numbers, not sparse, got {given}") from None
    if finite:
        require_finite(**{name: array})
    return array


def choose_support(rows: Rows, discount: float, num_atoms: int, regularisation: float) -> Support:
    """An even support over mean return ± 4 standard deviations, both estimated linearly, within what is possible."""
    d, r, ended = rows.features.shape[1], rows.rewards, rows.rewards[rows.ended]
    size = few_rows(d)
    horizon = 1.0 / (1.0 - discount)
    least, most = horizon * float(r.min()), horizon * float(r.max())
    if ended.size:
        least, most = min(least, float(r.min())), max(most, float(r.max()))
    gram, cross, target, spread = regularisation * len(r) * np.eye(d), np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for part in rows.parts(size):
        add_product(gram, part.features, part.features)
        add_product(cross, part.features, part.next_features * ~part.ended[:, None])
        target += part.features.T @ part.rewards
    # Least squares, since a first chunk may have fewer rows than features.
    mean = np.linalg.lstsq(gram - discount * cross, target, rcond=1e-10)[0]

    def value(features: Floats) -> Floats:
        return np.clip(features @ mean, least, most)

    # Variances obey a Bellman equation too: squared temporal differences, discounted by the square of the discount.
    for part in rows.parts(size):
        surprise = part.rewards + part.discounts(discount) * value(part.next_features) - value(part.features)
        spread += part.features.T @ surprise**2
    variance = np.linalg.lstsq(gram - discount**2 * cross, spread, rcond=1e-10)[0]
    low, high = np.inf, -np.inf
    for part in rows.parts(size):
        v, margin = value(part.features), 4 * np.sqrt(np.clip(part.features @ variance, 0.0, None))
        low, high = min(low, float((v - margin).min())), max(high, float((v + margin).max()))
    low = min(max(low, least), float(ended.min(initial=np.inf)))
    high = max(min(high, most), float(ended.max(initial=-np.inf)))
    if high - low <= 1e-9 * max(1.0, abs(low)):  # every return is the same
        low, high = low - max(1.0, 0.01 * abs(low)), high + max(1.0, 0.01 * abs(high))
    return Support.uniform(low, high, num_atoms)


def data_whitening(data: Data, regularisation: float) -> Whitening:
    """Change to features that are orthonormal under the data; from the Gram matrix, since the rows may be gone."""
    gram = data.gram / data.num_samples + regularisation * np.eye(len(data.gram))
    scale = np.sqrt(np.diag(gram))
    if not scale.all():
        column = int(np.argmin(scale))
        raise ValueError(f"X must not have a column of zeros, got column {column}: drop it, or set regularisation > 0")
    values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
    rank = int((values > 1e-13 * values[-1]).sum())
    if rank < len(values):
        raise ValueError(
            f"X must have linearly independent columns, got rank {rank} of {len(values)}: drop some, or set "
            "regularisation > 0"
        )
    inverse = vectors / np.sqrt(values) / scale[:, None]
    return Whitening(inverse, float(values[-1] / values[0]), inverse.T @ data.total / data.num_samples)


def system_from_moments(
    collector: MomentCollector, data: Data, whitening: Whitening, normalisation: Normalisation
) -> tuple[LinearSystem, bool]:
    """The system in whitened weights, and whether its whole matrix was formed."""
    moments, change, d = collector.moments(), whitening.inverse, len(data.total)
    turned = change.T / data.num_samples
    for g in range(0, len(moments.crosses), 64):  # in place, a few at a time: all of them may be a gigabyte
        part = (moments.crosses[g : g + 64].reshape(-1, d) @ change).reshape(-1, d, d)
        side_by_side = turned @ part.transpose(1, 0, 2).reshape(d, -1)
        moments.crosses[g : g + 64] = side_by_side.reshape(d, -1, d).transpose(1, 0, 2)
    moments = moments._replace(inflows=moments.inflows @ turned.T, terminal=turned @ moments.terminal)
    system = compressed_system(moments, whitening.constant, data.support, normalisation)
    groups, size = len(moments.rewards), system.constant.size
    # With more groups than atoms one product with the whole matrix is less work than those of all groups, and for very
    # many of them it is less memory too.
    if groups <= data.support.num_atoms or size**2 > max(MOST_NUMBERS, 6 * groups * size) or system.dense is None:
        return system, False
    whole = system.dense()
    matrix = whole.reshape(size, size)
    return LinearSystem(lambda w: (matrix @ w.ravel()).reshape(w.shape), system.constant, lambda: whole), True


def system_by_passes(rows: Rows, data: Data, whitening: Whitening, normalisation: Normalisation) -> LinearSystem:
    """The same system with one pass over the data for each product: for moments that would not fit."""
    change, k = whitening.inverse, data.support.num_atoms

    def total(laws: Callable[[Rows], Floats]) -> Floats:
        out = np.zeros((len(change), k))
        for part in rows.parts(few_rows(8 * max(k, len(change)))):
            out += part.features.T @ backup(data.support, part.rewards, part.discounts(data.discount), laws(part))
        return change.T @ out / data.num_samples

    def move(weights: Floats) -> Floats:
        return total(lambda part: np.where(part.ended[:, None], 0.0, part.next_features @ (change @ weights)))

    even = np.full(k, 1.0 / k)
    spread = total(lambda part: np.where(part.ended[:, None], 0.0, even))
    terminal = total(lambda part: np.where(part.ended[:, None], even, 0.0))  # all of it goes to the reward
    return matrix_free_system(move, spread, terminal, whitening.constant, normalisation)


def few_rows(width: int) -> int:
    """Rows such that arrays of (rows, width) stay small."""
    return max(1, _CHUNK_NUMBERS // width)


def unit_mass(masses: Floats) -> Floats:
    """Masses (n, K) with what is missing to one spread evenly."""
    return masses + (1.0 - masses.sum(axis=1, keepdims=True)) / masses.shape[1]
