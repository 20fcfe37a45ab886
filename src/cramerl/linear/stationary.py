"""The stationary distribution of a sparse chain, up to a million states and more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from cramerl._arrays import Floats
from cramerl.linear.operators import Sparse

# States up to which dense state reduction comes first, and up to which it follows a power iteration that failed.
_TINY_STATES, _DENSE_STATES = 100, 500
# States up to which sparse state reduction ends in a dense one when few states can be removed at a time.
_DENSE_CORE = 5000
# Change of a step (sum of absolute values) at which power iteration has converged.
_TOLERANCE = 1e-13
# Steps of power iteration before state reduction is tried, and if that fails too.
_FAST_STEPS, _SLOW_STEPS = 400, 200_000
# Steps over which the rate of convergence is measured.
_WINDOW = 20
# States that dense state reduction removes with one matrix product.
_BLOCK = 64
# Entries to which state reduction may fill the matrix before it gives up: about a gigabyte.
_MOST_ENTRIES = 40_000_000


def stationary_distribution(transition: Sparse) -> Floats:
    r"""The distribution :math:`\xi = \xi P`; ValueError where more than one exists.

    A finite chain has exactly one if it has exactly one closed class of states. Chains that mix fast are solved by
    power iteration, the others by state reduction (Grassmann, Taksar and Heyman): remove states, each time censoring
    the chain on the rest, then fill in backwards. It never subtracts, so it keeps every digit however slowly the chain
    mixes.
    """
    pattern = sparse.csr_array((transition.data > 0, transition.indices, transition.indptr), shape=transition.shape)
    count, label = csgraph.connected_components(pattern, directed=True, connection="strong")
    x, y = pattern.nonzero()
    leaves = np.zeros(count, dtype=bool)
    leaves[label[x[label[x] != label[y]]]] = True
    closed = np.flatnonzero(~leaves)
    if len(closed) > 1:
        examples = [int(np.argmax(label == c)) for c in closed[:2]]
        raise ValueError(
            f"transition must have one stationary distribution, got {len(closed)} sets of states that are never left "
            f"(state {examples[0]} and state {examples[1]} are in different ones); give state_distribution yourself"
        )
    recurrent = np.flatnonzero(label == closed[0])
    inner = transition if len(recurrent) == transition.shape[0] else transition[recurrent][:, recurrent]
    distribution = np.zeros(transition.shape[0])
    distribution[recurrent] = _solve(sparse.csr_array(inner))
    return distribution


def _solve(chain: Sparse) -> Floats:
    if chain.shape[0] <= _TINY_STATES:
        return _state_reduction(chain.toarray())
    distribution, settled = _power(chain, _FAST_STEPS)
    if not settled and chain.shape[0] <= _DENSE_STATES:
        return _state_reduction(chain.toarray())
    if not settled:
        reduced = _sparse_state_reduction(chain)
        distribution, settled = _power(chain, _SLOW_STEPS) if reduced is None else (reduced, True)
    if not settled:
        raise ValueError("transition mixes too slowly to find its stationary distribution; give state_distribution")
    return distribution


def _state_reduction(chain: Floats) -> Floats:
    """One state at a time within a block of the last states, then the whole block at once from the rest."""
    p = chain.copy()
    for top in range(len(p), 1, -_BLOCK):
        low = max(top - _BLOCK, 1)
        for n in range(top - 1, low - 1, -1):
            p[:n, n] /= p[n, :n].sum()  # one minus the probability of staying, without the subtraction
            p[:n, low:n] += np.outer(p[:n, n], p[n, low:n])
            p[low:n, :low] += np.outer(p[low:n, n], p[n, :low])
        p[:low, :low] += p[:low, low:top] @ p[low:top, :low]
    distribution = np.zeros(len(p))
    distribution[0] = 1.0
    for n in range(1, len(p)):
        distribution[n] = distribution[:n] @ p[:n, n]
    return distribution / distribution.sum()


def _sparse_state_reduction(chain: Sparse) -> Floats | None:
    """The same, many states at a time: states of an independent set are not neighbours. None if the matrix fills up."""
    levels: list[tuple[Any, Any, Sparse]] = []
    rest: Any = chain
    while rest.shape[0] > _DENSE_STATES:
        removed = _independent_set(rest)
        out, kept = np.flatnonzero(removed), np.flatnonzero(~removed)
        onwards = rest[out][:, kept]
        exits = np.asarray(onwards.sum(axis=1)).ravel()
        into = sparse.csr_array(rest[kept][:, out].multiply(1 / exits))
        rest = sparse.csr_array(rest[kept][:, kept] + into @ onwards)
        levels.append((out, kept, into))
        if rest.nnz > _MOST_ENTRIES:
            return None
        if len(out) < 0.05 * len(kept) and len(kept) <= _DENSE_CORE:
            break
    distribution = _state_reduction(rest.toarray())
    for out, kept, into in reversed(levels):
        whole = np.empty(len(out) + len(kept))
        whole[kept], whole[out] = distribution, distribution @ into
        distribution = whole / whole.sum()
    return distribution


def _independent_set(chain: Sparse) -> NDArray[np.bool_]:
    """States that come before all their neighbours in order of the entries their removal would create."""
    size = chain.shape[0]
    x, y = chain.nonzero()
    x, y = x[x != y], y[x != y]
    created = np.bincount(x, minlength=size) * np.bincount(y, minlength=size)
    # Ties are broken at random: along a path, where all states tie, their own order would remove one at a time.
    rank = np.lexsort((np.random.default_rng(0).permutation(size), created)).argsort()
    first = np.full(size, size)
    np.minimum.at(first, x, rank[y])
    np.minimum.at(first, y, rank[x])
    return rank < first


def _power(chain: Sparse, most_steps: int) -> tuple[Floats, bool]:
    """Power iteration, and whether it converged; it stops early when its rate shows that it will not.

    When it is too slow the chain may be periodic, so it continues on (I + P) / 2, which never is.
    """
    backwards = sparse.csr_array(chain.T)
    distribution = np.full(chain.shape[0], 1.0 / chain.shape[0])
    lazy, previous = False, math.inf
    for step in range(1, most_steps + 1):
        moved = backwards @ distribution
        change = float(np.abs(moved - distribution).sum())
        distribution = (distribution + moved) / 2 if lazy else moved
        if change <= _TOLERANCE:
            return distribution / distribution.sum(), True
        if step % _WINDOW == 0:
            steps_left = math.inf  # to the tolerance, at the rate of the last window
            if change < previous < math.inf:
                steps_left = _WINDOW * math.log(_TOLERANCE / change) / math.log(change / previous)
            if math.isfinite(previous) and step + steps_left > most_steps:
                if lazy and most_steps < _SLOW_STEPS:
                    break
                lazy = True
            previous = change
    return distribution / distribution.sum(), False
