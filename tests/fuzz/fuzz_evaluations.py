"""Return distributions near a discount of one: right to six digits, or refused or warned of, never wrong in silence.

The independent solution forms the whole system of Kronecker products in extended precision, from the definition of the
projection, and refines its factorisation until the last correction is far below what is asked of the library.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from cramerl import Support
from cramerl.linear import DistributionalLSTD, MarkovRewardProcess, evaluate, examples, suggest_support

TOLERANCE = 1e-6
MOST_UNKNOWNS = 800
NORMALISATIONS = ("before", "after", "affine")
METHODS = ("auto", "auto", "direct", "krylov", "iteration")
Extended = np.longdouble


class Sums(NamedTuple):
    """Averages over states or over the rows of a log that determine the fixed point.

    ``crosses`` has (reward, discount, E[phi phi'^T], E[phi]) of what continues, ``ends`` (reward, E[phi]) of what does
    not; ``gram`` is E[phi phi^T] and ``total`` is E[phi] of all.
    """

    crosses: list[tuple[float, float, Any, Any]]
    ends: list[tuple[float, Any]]
    gram: Any
    total: Any


def trial(rng: np.random.Generator, _: Any, place: Path) -> str | None:
    """One process, or a log of it; one discount, support and kind of features."""
    discount = float(1 - 10.0 ** -rng.choice([rng.uniform(0.1, 9), 9.0, 6.0, 1.0], p=[0.7, 0.1, 0.1, 0.1]))
    process = _process(rng, discount)
    support = _support(rng, process)
    features = _features(rng, process.num_states, max(1, MOST_UNKNOWNS // support.num_atoms))
    asked = {
        "normalisation": str(rng.choice(NORMALISATIONS, p=[0.6, 0.2, 0.2])),
        "method": str(rng.choice(METHODS if discount < 0.9999 else METHODS[:-1])),  # a million steps take a minute
    }
    what = f"{process!r}, {support!r}, {features.shape[1]} features, {asked}"
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            weights, sums, phi = (_log if rng.random() < 0.3 else _exact)(rng, process, features, support, asked)
        except ValueError as refused:
            return None if len(str(refused)) > 20 else f"{what}: refused without a reason: {refused}"
    if any(issubclass(one.category, UserWarning) for one in caught):
        return None
    expected = solution(sums, support, asked["normalisation"])
    offset = Extended(1) / support.num_atoms if asked["normalisation"] == "affine" else 0
    wrong = _errors(features.astype(Extended) @ weights + offset, phi @ expected + offset, support)
    return None if wrong is None else f"{what}: {wrong}"


def _exact(rng: Any, process: Any, features: Any, support: Support, asked: dict[str, str]) -> tuple[Any, Sums, Any]:
    weights = evaluate(process, features, support, **asked).weights
    branches, transition = process.branches, process.transition.toarray().astype(Extended)
    xi = stationary(transition)
    phi = features @ _better(np.sqrt(xi.astype(np.float64))[:, None] * features)
    crosses = []
    for reward in np.unique(branches.rewards):
        rows = branches.rewards == reward
        following = np.zeros_like(transition)
        np.add.at(following, branches.states[rows], branches.next_distribution[rows].toarray())
        left = (xi[:, None] * phi).T
        crosses.append((reward, process.discount, left @ following @ phi, left @ following.sum(axis=1)))
    return weights, Sums(crosses, [], (xi[:, None] * phi).T @ phi, xi @ phi), phi


def _log(rng: Any, process: Any, features: Any, support: Support, asked: dict[str, str]) -> tuple[Any, Sums, Any]:
    """The same from a log, in which some returns end."""
    steps = process.sample(int(rng.integers(300, 3000)), seed=int(rng.integers(2**31)))
    ended = rng.random(len(steps.states)) < rng.choice([0.0, 0.01, 0.3])
    x, following = features[steps.states], features[steps.next_states]
    discount = 1.0 if ended.any() and rng.random() < 0.2 else process.discount
    model = DistributionalLSTD(support, discount, **asked).fit(x, steps.rewards, following, ended)
    change = _better(x)
    phi_next = following @ change
    phi = x @ change / len(x)
    crosses, ends = [], []
    for reward in np.unique(steps.rewards):
        rows, last = (steps.rewards == reward) & ~ended, (steps.rewards == reward) & ended
        crosses.append((reward, discount, phi[rows].T @ phi_next[rows], phi[rows].sum(axis=0)))
        ends.append((reward, phi[last].sum(axis=0)))
    return model.weights_, Sums(crosses, ends, phi.T @ (x @ change), phi.sum(axis=0)), features @ change


def _better(table: Any) -> Any:
    """(D, D) a change of basis to features that are hardly dependent over a table's rows, and mean the same."""
    return np.linalg.inv(np.linalg.qr(table)[1]).astype(Extended)


def solution(sums: Sums, support: Support, normalisation: str) -> Any:
    """(D, K) weights of the fixed point, from the definition."""
    atoms = support.atoms.astype(Extended)
    d, k = len(sums.total), len(atoms)
    even, centre = np.full(k, Extended(1) / k), np.eye(k) - np.full((k, k), Extended(1) / k)
    matrix, constant = np.kron(sums.gram, np.eye(k)), np.zeros((d, k), Extended)
    for reward, discount, cross, inflow in sums.crosses:
        backup = hats(atoms, reward + Extended(discount) * atoms)
        if normalisation == "after":
            matrix -= np.kron(cross, centre @ backup)
        else:
            matrix -= np.kron(cross, backup @ centre)
            constant += np.outer(inflow, backup @ even)
    for reward, inflow in sums.ends:
        point = hats(atoms, np.array([reward], Extended))[:, 0]
        constant += np.outer(inflow, point - even if normalisation == "after" else point)
    if normalisation != "before":
        constant += np.outer(sums.total, even if normalisation == "after" else -even)
    return solve(matrix, constant.ravel()).reshape(d, k)


def stationary(transition: Any) -> Any:
    """The stationary distribution, with every digit of its smallest entries: states are removed without subtracting."""
    chain = transition.copy()
    for last in range(len(chain) - 1, 0, -1):
        chain[:last, last] /= chain[last, :last].sum()
        chain[:last, :last] += np.outer(chain[:last, last], chain[last, :last])
    xi = np.eye(len(chain), dtype=Extended)[0]
    for state in range(1, len(chain)):
        xi[state] = xi[:state] @ chain[:state, state]
    return xi / xi.sum()


def hats(atoms: Any, places: Any) -> Any:
    """(K, N) projection of points: each goes to its two neighbours, or to the end of the support."""
    places = np.clip(places, atoms[0], atoms[-1])
    cell = np.clip(np.searchsorted(atoms, places, side="right") - 1, 0, len(atoms) - 2)
    up = (places - atoms[cell]) / (atoms[cell + 1] - atoms[cell])
    out, columns = np.zeros((len(atoms), len(places)), Extended), np.arange(len(places))
    out[cell, columns] = 1 - up
    out[cell + 1, columns] += up
    return out


def solve(matrix: Any, constant: Any) -> Any:
    """A x = b in extended precision: factorised in double precision, then refined."""
    factors, matrix = lu_factor(matrix.astype(np.float64)), matrix.astype(Extended)
    x = lu_solve(factors, constant.astype(np.float64)).astype(Extended)
    for _ in range(50):
        correction = lu_solve(factors, (constant - matrix @ x).astype(np.float64))
        x = x + correction
        if np.abs(correction).max() <= 0.01 * TOLERANCE * np.abs(x).max():
            return x
    raise ArithmeticError("the independent solution did not converge")


def _errors(masses: Any, right: Any, support: Support) -> str | None:
    """How wrong masses and means are, if they are; all are compared with their own largest.

    Where the total mass is not one, what it is too much counts at the atoms' distance from zero.
    """
    error, largest = float(np.abs(masses - right).max()), max(1.0, float(np.abs(right).max()))
    if not error <= TOLERANCE * largest:
        return f"masses are wrong by {error:.2g}"
    means, true = masses @ support.atoms, right @ support.atoms
    error, size = float(np.abs(means - true).max()), float(np.abs(true).max())
    far, beyond = float(np.abs(support.atoms).max()), float(np.abs(right.sum(axis=1) - 1).max())
    least = TOLERANCE * (largest * (support.v_max - support.v_min) + beyond * far) + 1e-12 * far
    return None if error <= least else f"means of up to {size:.3g} are wrong by {error:.2g}"


def _process(rng: np.random.Generator, discount: float) -> MarkovRewardProcess:
    size = int(rng.integers(2, 30))
    rewards = np.round(rng.normal(size=size), 1) * 10.0 ** rng.integers(-3, 4)
    if rng.random() < 0.2:
        rewards = np.abs(rewards)
    kind = rng.choice(["random", "sparse", "ring", "walk", "grid", "queue", "two parts"])
    if kind == "random":
        return MarkovRewardProcess(rng.dirichlet(np.ones(size), size), rewards, discount)
    if kind == "sparse":  # and periodic now and then
        return MarkovRewardProcess(np.eye(size)[rng.permutation(size)] * 0.9 + 0.1 / size, rewards, discount)
    if kind == "two parts":  # which are hardly connected
        half, link = size // 2 + 1, 10.0 ** -rng.uniform(1, 6)
        blocks = np.kron(np.eye(2), rng.dirichlet(np.ones(half), half)) * (1 - link) + link / (2 * half)
        return MarkovRewardProcess(blocks, np.resize(rewards, 2 * half), discount)
    if kind == "grid":
        return examples.gridworld(int(rng.integers(2, 6)), int(rng.integers(2, 6)), discount, float(rng.random()))
    if kind == "queue":
        return examples.queue(size, float(rng.uniform(0.1, 0.9)), float(rng.uniform(0.1, 0.9)), discount)
    return examples.ring(size, discount) if kind == "ring" else examples.random_walk(size + 1, discount)


def _support(rng: np.random.Generator, process: MarkovRewardProcess) -> Support:
    atoms, (low, high) = int(rng.integers(2, 60)), process.return_range()
    pad = 1e-3 * max(high - low, 1.0)
    kind = rng.choice(["range", "suggested", "narrow", "uneven"])
    if kind == "suggested":
        return suggest_support(process, atoms)
    if kind == "narrow":
        values = process.true_values()
        return Support.uniform(values.min() - 1, values.mean() + 0.1, atoms)
    if kind == "uneven":
        return Support(low - pad + (high - low + 2 * pad) * np.linspace(0, 1, atoms) ** 2)
    return Support.uniform(low - pad, high + pad, atoms)


def _features(rng: np.random.Generator, num_states: int, most: int) -> np.ndarray:
    """All states apart, or fewer random features, with or without a constant."""
    if num_states <= most and rng.random() < 0.5:
        return np.eye(num_states)
    features = rng.normal(size=(num_states, int(rng.integers(1, min(most, num_states) + 1))))
    if rng.random() < 0.6:
        features[:, 0] = 1
    return features
