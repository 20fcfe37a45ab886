"""Scores in the formats of other tools: rliable's arrays and Dopamine's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl.evidence.curves import Curve, common_steps, final_score, on_grid

Array = NDArray[np.float64]


class RliableScores(NamedTuple):
    """Scores as rliable's functions take them.

    Attributes:
        games: the games, in the order of the arrays.
        scores: for each agent, (runs, games) final scores, not normalised.
        curves: for each agent, (runs, games, checkpoints) mean returns between checkpoints; NaN before the first
            episode.
        steps: for each game, (checkpoints,) steps.
        seeds: for each agent, the seeds of the runs of each game.
    """

    games: list[str]
    scores: dict[str, Array]
    curves: dict[str, Array]
    steps: dict[str, Array]
    seeds: dict[str, list[list[int]]]


def rliable_scores(
    curves: Iterable[Curve],
    *,
    tail: float = 0.2,
    checkpoints: int = 20,
    labels: Mapping[Curve, str] | None = None,
    steps: Mapping[str, int] | None = None,
) -> RliableScores:
    """Arrays for rliable, over the games that every agent has played.

    rliable needs the same number of runs for each game. If games have different numbers, the runs with the lowest
    seeds are taken, as many as every game has.

    Args:
        curves: runs that, for one agent and game, differ only in their seed.
        tail: see `final_score`.
        checkpoints: number of points of the learning curves.
        labels: a name for each curve; its agent by default.
        steps: for each game, the step at which runs are taken to end; the end of the shortest by default.
    """
    if checkpoints < 1:
        raise ValueError(f"checkpoints must be >= 1, got {checkpoints}")
    table: dict[str, dict[str, list[Curve]]] = {}
    for curve in curves:
        name = curve.agent if labels is None else labels[curve]
        table.setdefault(name, {}).setdefault(curve.env, []).append(curve)
    if not table:
        raise ValueError("curves must contain at least one run, got none")
    games = sorted(set.intersection(*(set(played) for played in table.values())))
    shortest = {env: common_steps(one for played in table.values() for one in played[env]) for env in games}
    ends = shortest if steps is None else steps
    edges = {env: np.linspace(0, ends[env], checkpoints + 1) for env in games}
    scores, arrays, seeds = {}, {}, {}
    for name, played in table.items():
        runs = min((len(played[env]) for env in games), default=0)
        kept = [sorted(played[env], key=lambda curve: curve.seed)[:runs] for env in games]
        table_of_scores = np.array([[final_score(one, tail, ends[one.env]) for one in row] for row in kept])
        scores[name] = table_of_scores.T.reshape(runs, len(games))  # also with no game in common
        grid = np.array([[on_grid(one, edges[one.env]) for one in row] for row in kept])
        arrays[name] = grid.reshape(len(games), runs, checkpoints).transpose(1, 0, 2)
        seeds[name] = [[one.seed for one in row] for row in kept]
    return RliableScores(games, scores, arrays, {env: edges[env][1:] for env in games}, seeds)


def dopamine_rows(
    curves: Sequence[Curve], labels: Mapping[Curve, str] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """For each game, the rows of a JSON file of Dopamine: the mean return of each run in each iteration.

    Iterations in which no episode ended have no row. The runs of an agent follow one another in order of their seeds.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for curve in curves:
        name = curve.agent if labels is None else labels[curve]
        numbers = curve.metrics.get("iteration", np.arange(len(curve.steps), dtype=np.float64))
        known = (curve.episodes > 0) & np.isfinite(numbers)
        for iteration in np.unique(numbers[known]):
            rows = known & (numbers == iteration)
            value = float(np.average(curve.returns[rows], weights=curve.episodes[rows]))
            found.setdefault(curve.env, []).append({"Iteration": int(iteration), "Value": value, "Agent": name})
    return found
