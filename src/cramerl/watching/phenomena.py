r"""Steps worth looking at: the paper's phenomena, each with a measure that is one number per distribution.

For a distribution with masses :math:`q_1, \dots, q_K` on atoms :math:`z_1 < \dots < z_K`, of the action that was taken:

* double-negative: negative mass on negative returns, while the total stays near one,
  :math:`\sum_{z_i < 0} \max(-q_i, 0) \cdot \max(0, 1 - |1^\top q - 1|)`.
* compensation: mass that cancels beside the return 0, times the mass at 0. With :math:`o` the atom nearest to 0 and
  :math:`W` the five atoms on each side of it, :math:`\min(\sum_W \max(q_i, 0), \sum_W \max(-q_i, 0)) \cdot
  \min(\max(q_o, 0), 1)`.
* noise: how rough the distribution is on at least half of its atoms,
  :math:`K \cdot \mathrm{median}_i |q_i - (q_{i-1} + q_{i+1}) / 2|`. A single spike or a smooth bell scores almost zero.
* disagreement: the greatest Cramér distance between two agents' distributions, :math:`(\int (F - G)^2)^{1/2}`, each
  with unit mass (`cramerl.measures.with_unit_mass`).

With several agents, the highest score counts. Quantiles have no negative or rough mass and score zero, except for
disagreement.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np

from cramerl.measures import with_unit_mass
from cramerl.supports import Support
from cramerl.watching.recording import Recording, View

_BESIDE = 5  # atoms on each side of 0 that count as beside it


def double_negative(atoms: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Negative mass on negative returns where the total is near one: (..., K) -> (...)."""
    negative = np.maximum(-masses[..., atoms < 0], 0).sum(axis=-1)
    return negative * np.maximum(0, 1 - abs(masses.sum(axis=-1) - 1))


def compensation(atoms: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Mass that cancels beside the return 0, times the mass at 0: (..., K) -> (...)."""
    if not atoms[0] <= 0 <= atoms[-1]:
        return np.zeros(masses.shape[:-1])
    at = int(np.argmin(abs(atoms)))
    beside = np.delete(masses, at, axis=-1)[..., max(0, at - _BESIDE) : at + _BESIDE]
    cancels = np.minimum(np.maximum(beside, 0).sum(axis=-1), np.maximum(-beside, 0).sum(axis=-1))
    return cancels * np.clip(masses[..., at], 0, 1)


def noise(atoms: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Roughness on at least half of the atoms: (..., K) -> (...)."""
    if atoms.size < 3:
        return np.zeros(masses.shape[:-1])
    rough = abs(masses[..., 1:-1] - (masses[..., :-2] + masses[..., 2:]) / 2)
    return atoms.size * np.median(rough, axis=-1)


MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "double-negative": double_negative,
    "compensation": compensation,
    "noise": noise,
}
MEANINGS = {
    "double-negative": "negative mass lies on negative returns, although the total mass is close to one",
    "compensation": "the mass on the return 0 stands between positive and negative masses that cancel",
    "noise": "almost all returns carry a little mass, which jumps from each to the next",
    "disagreement": "the agents predict different distributions of the return in the same situation",
}
"""What each phenomenon is, for the page."""
IN_WORDS = {
    "double-negative": "negative mass lies on negative returns",
    "compensation": "masses beside 0 cancel",
    "noise": "a prediction is roughest",
    "disagreement": "the agents disagree most",
}
"""What there is to see at the strongest step of each."""
PHENOMENA = (*MEASURES, "disagreement")


class Mark(NamedTuple):
    """The part of a chart in which a phenomenon shows: the number of the view, and the returns at both ends."""

    view: int
    low: float
    high: float


def cramer_distance(first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Cramér distance between distributions of unit mass on different atoms.

    Args:
        first: atoms and masses, (..., K) each.
        second: atoms and masses, (..., L) each.
    """
    atoms, heights = _cdf_difference(first, second)
    return np.sqrt(np.sum(heights**2 * np.diff(atoms), axis=-1))


def _cdf_difference(
    first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """All atoms (..., K + L) in order, and the difference of the CDFs between neighbours, (..., K + L - 1)."""
    atoms = np.concatenate([first[0], second[0]], axis=-1)
    jumps = np.concatenate([first[1], -second[1]], axis=-1)
    order = np.argsort(atoms, axis=-1, kind="stable")
    heights = np.cumsum(np.take_along_axis(jumps, order, axis=-1), axis=-1)[..., :-1]
    return np.take_along_axis(atoms, order, axis=-1), heights


def scores(recording: Recording) -> dict[str, np.ndarray]:
    """The measure of each phenomenon at each step, (T,); disagreement only if there are several agents."""
    found, action = {}, recording.action
    signed = [(view.atoms, view.of_actions(action).astype(float)) for view in recording.views if view.kind == "masses"]
    for name, measure in MEASURES.items():
        each = [measure(atoms, masses) for atoms, masses in signed]
        found[name] = np.max(each, axis=0) if each else np.zeros(len(recording))
    if len(recording.views) > 1:
        pairs = combinations([_with_unit_mass(view, action) for view in recording.views], 2)
        found["disagreement"] = np.max([cramer_distance(*pair) for pair in pairs], axis=0)
    return found


def strongest_steps(score: np.ndarray, count: int = 10) -> list[int]:
    """Steps with the highest scores, strongest first, no two within a hundredth of the recording."""
    apart = max(3, len(score) // 100)
    left, found = np.array(score, float), []
    while len(found) < count and left.size and left.max() > 1e-6:
        best = int(np.argmax(left))
        found.append(best)
        left[max(0, best - apart) : best + apart + 1] = 0
    return found


def marks(recording: Recording, name: str, step: int) -> list[Mark]:
    """Where on which agents' charts a phenomenon shows at a step."""
    action = recording.action[step : step + 1]
    views = [view._replace(distributions=view.distributions[step : step + 1]) for view in recording.views]
    if name == "disagreement":
        pairs = combinations([(i, _with_unit_mass(view, action)) for i, view in enumerate(views)], 2)
        (i, first), (j, second) = max(pairs, key=lambda pair: float(cramer_distance(pair[0][1], pair[1][1])[0]))
        atoms, heights = (part[0] for part in _cdf_difference(first, second))
        apart = abs(heights) * (np.diff(atoms) > 0)  # between two atoms on one return there is nothing to shade
        apart = np.flatnonzero(apart >= apart.max() / 2)
        return [Mark(view, float(atoms[apart[0]]), float(atoms[apart[-1] + 1])) for view in (i, j)]
    signed = [(i, view, view.of_actions(action)[0].astype(float)) for i, view in enumerate(views) if view.atoms.size]
    i, view, masses = max(signed, key=lambda one: float(MEASURES[name](one[1].atoms, one[2])))
    shown = np.arange(view.atoms.size)
    if name == "double-negative":
        shown = np.flatnonzero((view.atoms < 0) & (masses < 0))
    elif name == "compensation":
        shown = shown[abs(shown - np.argmin(abs(view.atoms))) <= _BESIDE]
    return [Mark(i, float(view.atoms[shown[0]]), float(view.atoms[shown[-1]]))]


def _with_unit_mass(view: View, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Atoms and masses (T, K) of the distributions of the actions taken."""
    taken = view.of_actions(action).astype(float)
    if view.kind == "masses":
        return np.broadcast_to(view.atoms, taken.shape), with_unit_mass(Support(view.atoms), taken)
    return taken, np.full(taken.shape, 1 / taken.shape[-1])
