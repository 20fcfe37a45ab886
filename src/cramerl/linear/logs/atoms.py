"""Where the atoms of a log's support lie: close together where returns were seen, and on them if they are few."""

from __future__ import annotations

import heapq

import numpy as np

from cramerl._arrays import Floats
from cramerl.supports import Support

# Different returns up to which each gets an atom, if on average each was seen so often.
_FEW_RETURNS, _SEEN_EACH = 150, 5
# Returns closer than this share of the width are one.
_SAME = 1e-9
# Share of the returns that were seen from which on atoms are where returns lie.
_MOSTLY = 0.99
# Rows of complete episodes from which on they say where returns lie.
_LEAST_RETURNS = 20
# Share of the atoms that is spread evenly, whatever was seen; and gaps in the width that few returns may leave.
_EVEN, _GAPS = 0.5, 20


def support_for_returns(reach: Support, returns: Floats, num_atoms: int, *, exact: bool) -> Support:
    """A support with the ends of ``reach``, for a policy whose returns are like those that were seen.

    If returns take few values, as where a single reward comes at the end, these are atoms: a backup then moves mass
    from atom to atom, and the grid does not widen distributions. Otherwise half of the atoms are spread evenly and
    half like the returns.

    Args:
        reach: an even support that holds all returns.
        returns: (n,) returns that were seen; they may be a sample, or none.
        num_atoms: K.
        exact: whether K is what was asked for, or may differ where returns take few values.
    """
    count = num_atoms
    inside = np.sort(np.clip(returns, reach.v_min, reach.v_max))
    if len(inside) < _LEAST_RETURNS:
        return Support.uniform(reach.v_min, reach.v_max, count)
    width = reach.v_max - reach.v_min
    values = _different(inside, _SAME * width)
    if len(values) <= min(_FEW_RETURNS, len(inside) // _SEEN_EACH):
        atoms = _different(np.concatenate([[reach.v_min], values, [reach.v_max]]), _SAME * width)
        if not exact:
            return Support(_filled(atoms, len(atoms) + _GAPS, width / _GAPS))
        if len(atoms) <= count:
            return Support(_filled(atoms, count, 0.0))
    return Support(_like(inside, reach.v_min, reach.v_max, count))


def lie_on_atoms(returns: Floats, support: Support) -> bool:
    """Whether returns that were seen are those of the atoms, but for rounding and a few; not if none were seen."""
    if not len(returns):
        return False
    place = np.searchsorted(0.5 * (support.atoms[1:] + support.atoms[:-1]), returns)
    width = support.v_max - support.v_min
    return bool((np.abs(returns - support.atoms[place]) <= 1e-6 * width).mean() > _MOSTLY)


def _different(values: Floats, tolerance: float) -> Floats:
    """Sorted values without those that are within the tolerance of the one before."""
    ordered = np.sort(values)
    return ordered[np.append(True, np.diff(ordered) > tolerance)]


def _filled(atoms: Floats, most: int, gap: float) -> Floats:
    """The atoms and more between them: at most ``most`` in all, evenly in each gap, until no gap exceeds ``gap``."""
    widths = np.diff(atoms)
    pieces = np.ones(len(widths), dtype=np.intp)
    # Gaps that differ by rounding are the same: the first of them is filled, on every machine.
    digits = 9 - int(np.floor(np.log10(atoms[-1] - atoms[0])))
    heap = [(-round(width, digits), i) for i, width in enumerate(widths.tolist())]
    heapq.heapify(heap)
    for _ in range(most - len(atoms)):
        longest, i = heap[0]
        if -longest <= gap * (1 + 1e-9):
            break
        pieces[i] += 1
        heapq.heapreplace(heap, (-round(float(widths[i] / pieces[i]), digits), i))
    parts = [np.linspace(a, b, n, endpoint=False) for a, b, n in zip(atoms[:-1], atoms[1:], pieces, strict=True)]
    return np.append(np.concatenate(parts), atoms[-1])


def _like(returns: Floats, low: float, high: float, count: int) -> Floats:
    """Atoms at even levels of a mixture of the even distribution and that of the sorted returns."""
    # The distribution function of the mixture, with its jumps as steep lines: knots before and after each return.
    values, first, times = np.unique(returns, return_index=True, return_counts=True)
    below, above = first / len(returns), (first + times) / len(returns)
    slope = (values - low) / (high - low)
    knots = np.concatenate([[low], np.repeat(values, 2), [high]])
    levels = np.stack([below, above], axis=1).ravel()
    mixed = _EVEN * np.concatenate([[0.0], np.repeat(slope, 2), [1.0]])
    mixed += (1 - _EVEN) * np.concatenate([[0.0], levels, [1.0]])
    atoms = np.interp(np.linspace(0.0, 1.0, count), mixed, knots)
    atoms[[0, -1]] = low, high
    # Several levels within one jump give one atom; the others go to the longest gaps.
    return _filled(_different(atoms, 1e-3 * (high - low) / count), count, 0.0)
