"""Scores in the formats of other tools: rliable's arrays and Dopamine's rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cramerl._arrays import Floats
from cramerl.evidence.aggregates import full_table
from cramerl.evidence.curves import on_grid
from cramerl.evidence.scores import BestGroups, ScoreGroup, Series
from cramerl.evidence.subjects import seed_order


class RliableScores(NamedTuple):
    """Scores as rliable's functions take them.

    Attributes:
        games: the games, in the order of the arrays.
        scores: for each agent, (runs, games) final scores, not normalised.
        steps: for each game, (checkpoints,) steps.
        curves: for each agent, (runs, games, checkpoints) mean returns between checkpoints; NaN before the first
            episode.
        seeds: for each agent, the seeds of the runs of each game.
    """

    games: list[str]
    scores: dict[str, Floats]
    steps: dict[str, Floats]
    curves: dict[str, Floats]
    seeds: dict[str, list[list[int | str]]]


def rliable_scores(
    best: BestGroups, games: Sequence[str], series: Sequence[Series], *, checkpoints: int = 20
) -> RliableScores:
    """Arrays for rliable: the largest table of games that every agent in it has played.

    rliable needs the same number of runs for each game. If games have different numbers, the runs with the lowest
    seeds are taken, as many as every game has.

    Args:
        best: the scores.
        games: the games, in order.
        series: the series, in order.
        checkpoints: number of points of the learning curves.
    """
    if checkpoints < 1:
        raise ValueError(f"checkpoints must be >= 1, got {checkpoints}")
    games, series = full_table(best, games, series)
    edges = {env: np.linspace(0, best[series[0], env].steps, checkpoints + 1) for env in games}
    scores, curves, seeds = {}, {}, {}
    for one in series:
        groups = [best[one, env] for env in games]
        runs = min(len(group.curves) for group in groups)
        kept = [
            sorted(zip(group.curves, group.scores, strict=True), key=lambda run: seed_order(run[0].seed))[:runs]
            for group in groups
        ]
        scores[one.label] = np.array([[score for _, score in row] for row in kept]).T
        grid = np.array([[on_grid(curve, edges[curve.env]) for curve, _ in row] for row in kept])
        curves[one.label] = grid.transpose(1, 0, 2)
        seeds[one.label] = [[curve.seed for curve, _ in row] for row in kept]
    return RliableScores(games, scores, {env: edges[env][1:] for env in games}, curves, seeds)


def dopamine_rows(groups: Iterable[ScoreGroup]) -> dict[str, list[dict[str, Any]]]:
    """For each game, the rows of a JSON file of Dopamine: the mean return of each run in each iteration.

    Dopamine's files have no game and no seed; with these, the same runs are found again when a row is read. Iterations
    in which no episode ended have no row, nor have runs of other libraries that count no iterations. The runs of an
    agent follow one another in order of their seeds.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for curve, label in [(curve, group.series.label) for group in groups for curve in group.curves]:
        if curve.subject.config is None and curve.unit != "iteration":
            continue
        numbers = curve.metrics.get("iteration", np.arange(len(curve.steps), dtype=np.float64))
        known = (curve.episodes > 0) & np.isfinite(numbers)
        for iteration in np.unique(numbers[known]):
            rows = known & (numbers == iteration)
            value = float(np.average(curve.returns[rows], weights=curve.episodes[rows]))
            row = {"Iteration": int(iteration), "Value": value, "Agent": label, "Game": curve.env, "Seed": curve.seed}
            found.setdefault(curve.env, []).append(row)
    return found
