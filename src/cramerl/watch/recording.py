"""What was seen, done and predicted, step by step: the numbers behind a page, a video or a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from cramerl.watch.tape import Tape


class View(NamedTuple):
    """What one agent predicts along a recording of T steps with A actions.

    Attributes:
        name: by which a reader tells it from the others.
        agent: s51, c51, ...; "process" for an evaluated process.
        kind: "masses" on fixed atoms, or "quantiles": K places of mass 1 / K each (one place for dqn).
        atoms: (K,) the fixed atoms; the K levels' masses are equal where there are none, and this is empty.
        distributions: (T, A, K) float32, signed masses or places.
        values: (T, A) float32, by which the agent compares actions.
        total: (T,) total mass of the distribution of the action that was taken.
        negative: (T,) how much of that distribution's mass is negative, as a positive number.
        clipped: (T,) share of the next distribution's mass that the backup of this step puts beyond the support.
    """

    name: str
    agent: str
    kind: Literal["masses", "quantiles"]
    atoms: np.ndarray
    distributions: np.ndarray
    values: np.ndarray
    total: np.ndarray
    negative: np.ndarray
    clipped: np.ndarray

    def distribution(self, step: int, action: int) -> tuple[np.ndarray, np.ndarray]:
        """Atoms and masses of one distribution."""
        distribution = self.distributions[step, action]
        if self.kind == "masses":
            return self.atoms, distribution
        return distribution, np.full(distribution.size, 1 / distribution.size, distribution.dtype)


@dataclass(frozen=True)
class Recording:
    """A recording of T steps, or of T states of a process.

    Attributes:
        title: what it shows.
        unit: "step" or "state".
        facts: sentences about it.
        actions: names of the A actions.
        tape: T pictures.
        palette: (P, 3) uint8, their colours.
        legend: what colours mean.
        caption: what the picture is.
        action: (T,) taken at each step.
        reward: (T,) that the action earned, in the game's points.
        score: (T,) points before the step, in its episode.
        episode: (T,) number of the episode, from 0.
        came: (T,) the discounted return that came after the step, in the learner's rewards; NaN where the episode was
            cut before it was known.
        views: one for each agent; the first one's actions were taken.
        labels: (T,) words for each step where numbers say too little, or empty.
    """

    title: str
    unit: str
    facts: list[str]
    actions: list[str]
    tape: Tape
    palette: np.ndarray
    legend: list[tuple[str, int]]
    caption: str
    action: np.ndarray
    reward: np.ndarray
    score: np.ndarray
    episode: np.ndarray
    came: np.ndarray
    views: list[View]
    labels: list[str]

    def __len__(self) -> int:
        return len(self.action)


def make_view(
    name: str, agent: str, support: np.ndarray | None, distributions: np.ndarray, values: np.ndarray, action: np.ndarray
) -> View:
    """A view whose masses are summed up here; ``clipped`` is zero."""
    distributions, values = np.asarray(distributions, np.float32), np.asarray(values, np.float32)
    if not (np.isfinite(distributions).all() and np.isfinite(values).all()):
        raise ValueError(f"{name} predicts numbers that are not finite: its weights cannot be used")
    zero, one = np.zeros(len(distributions), np.float32), np.ones(len(distributions), np.float32)
    if support is None:
        return View(name, agent, "quantiles", np.zeros(0), distributions, values, one, zero, zero)
    taken = np.take_along_axis(distributions, action[:, None, None].astype(int), axis=1)[:, 0]
    negative = np.maximum(-taken, 0).sum(axis=1)
    return View(name, agent, "masses", np.asarray(support), distributions, values, taken.sum(axis=1), negative, zero)


def clipped_mass(atoms: np.ndarray, rewards: np.ndarray, discounts: np.ndarray, next_masses: np.ndarray) -> np.ndarray:
    """Fraction (T,) of the next distributions' absolute mass (T, K) that r + gamma z moves beyond the last atoms."""
    moved = rewards[:, None] + discounts[:, None] * atoms
    outside = (moved < atoms[0]) | (moved > atoms[-1])
    size = abs(next_masses)
    return ((size * outside).sum(axis=1) / np.maximum(size.sum(axis=1), 1e-12)).astype(np.float32)


def realised_returns(rewards: np.ndarray, terminated: np.ndarray, cut: np.ndarray, discount: float) -> np.ndarray:
    """Discounted sums of the rewards that followed, (T,): NaN where an episode was cut off before they were known.

    Args:
        rewards: (T,) as the learner is given them.
        terminated: (T,) nothing comes after the step for the learner.
        cut: (T,) the recording or a time limit ended here though the game would have gone on.
        discount: per step.
    """
    came, later = np.full(len(rewards), np.nan, np.float32), np.nan
    for t in range(len(rewards) - 1, -1, -1):
        if terminated[t]:
            later = 0.0
        elif cut[t]:
            later = np.nan
        later = rewards[t] + discount * later
        came[t] = later
    return came
