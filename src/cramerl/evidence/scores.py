"""From curves to scores: which runs go by one name, and the scores of runs that differ only in their seed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cramerl._arrays import Floats
from cramerl.evidence.curves import TUNED, Curve, area_under_curve, final_score
from cramerl.evidence.protocols import ScoringProtocol
from cramerl.evidence.statistics import Interval, bootstrap_interval
from cramerl.evidence.subjects import agent_order
from cramerl.runs.config import DEFAULTS, SETTINGS, TrainConfig


class Series(NamedTuple):
    """Runs that go by one name in tables and figures: an agent, and what distinguishes it from its variants.

    Attributes:
        agent: the agent.
        settings: names and values of the distinguishing settings, sorted by name.
        protocol: the protocol in words, where runs of several protocols are shown side by side.
    """

    agent: str
    settings: tuple[tuple[str, Any], ...] = ()
    protocol: str = ""

    @property
    def variant(self) -> str:
        """What distinguishes it, in words; empty for the plain agent."""
        words = [f"{name} {setting_text(value)}" for name, value in self.settings]
        return ", ".join(filter(None, [*words, self.protocol]))

    @property
    def label(self) -> str:
        """Its name."""
        return f"{self.agent}, {self.variant}" if self.variant else self.agent

    def beside(self, other: Series) -> str:
        """Its name right after the other's: for variants with the same settings, only those that differ."""
        if self.agent != other.agent or [n for n, _ in self.settings] != [n for n, _ in other.settings]:
            return self.label
        own = tuple(pair for pair in self.settings if pair not in other.settings)
        return Series(self.agent, own, self.protocol if self.protocol != other.protocol else "").variant

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts series: by agent, then by the number and the values of their settings."""
        # Numbers by size; settings may also be words, or sizes of layers.
        values = [(n, (0, v, "") if isinstance(v, (int, float)) else (1, 0, repr(v))) for n, v in self.settings]
        return agent_order(self.agent), len(values), values, self.protocol


@dataclass(frozen=True, eq=False)
class ScoreGroup:
    """Runs of one series on one game that differ only in their seed.

    Attributes:
        series: the series.
        env: the game.
        curves: the runs that have a score or diverged.
        scores: (runs,) their final scores; NaN where a run diverged.
        whole: (runs,) their mean returns over all steps.
        score: the mean score over seeds with its bootstrap interval; NaN if a run diverged.
        steps: the step at which runs are taken to end.
        tried: how many settings of this series were tried on this game.
    """

    series: Series
    env: str
    curves: tuple[Curve, ...]
    scores: Floats
    whole: Floats
    score: Interval
    steps: int
    tried: int

    @property
    def config(self) -> TrainConfig | None:
        """The settings of its first run, only the seeds of the others differ; None for another library's runs."""
        return self.curves[0].subject.config

    @property
    def diverged(self) -> int:
        """How many of its runs diverged."""
        return sum(curve.diverged for curve in self.curves)

    @property
    def penalty(self) -> float:
        """S51's lambda in the orthonormal convention: K times the setting if that is on the total mass."""
        config = self.curves[0].config
        return config.mass_penalty * (config.num_atoms if config.mass_penalty_scale == "total" else 1)


def learning_rate(group: ScoreGroup) -> float:
    """The learning rate of a group, to sort settings that were tried."""
    return group.curves[0].config.learning_rate


def normalised_penalty(group: ScoreGroup) -> tuple[str, float]:
    """How a group normalises, and its lambda."""
    return group.curves[0].config.normalisation, group.penalty


BestGroups = Mapping[tuple[Series, str], ScoreGroup]
"""The group with the best mean score for each series and game."""


def setting_text(value: Any) -> str:
    """The value of a setting as a short word; different values have different words."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else str(value)
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value) or "none"


def group_runs(
    curves: Sequence[Curve], steps: Mapping[str, int], *, tail: float, seed: int, mixed: bool
) -> tuple[list[ScoreGroup], list[Curve]]:
    """Score the runs of a study.

    Args:
        curves: runs of one study.
        steps: for each game, the step at which runs are taken to end.
        tail: the fraction of the steps that is scored.
        seed: seed of the bootstrap.
        mixed: whether runs of different protocols are different series.

    Returns:
        The groups, and the runs in whose tail no episode ended.
    """
    members: dict[tuple[Series, str, tuple[Any, ...]], list[Curve]] = {}
    for curve, series in zip(curves, _series_of(curves, mixed), strict=True):
        tuned = tuple(curve.learned_with.get(name) for name in TUNED)
        members.setdefault((series, curve.env, tuned), []).append(curve)
    groups, without_score = [], []
    for (series, env, _), its in members.items():
        score_of = {curve: final_score(curve, tail, steps[env]) for curve in its}
        kept = [curve for curve in its if np.isfinite(score_of[curve]) or curve.diverged]
        without_score += [curve for curve in its if curve not in kept]
        if kept:
            scores = np.array([score_of[curve] for curve in kept])
            mean = Interval(np.nan, np.nan, np.nan)
            if np.isfinite(scores).all():
                mean = bootstrap_interval("mean", [scores], seed=seed)
            whole = np.array([area_under_curve(curve, steps[env]) for curve in kept])
            tried = sum(key[:2] == (series, env) for key in members)
            groups.append(ScoreGroup(series, env, tuple(kept), scores, whole, mean, steps[env], tried))
    return groups, without_score


def _series_of(curves: Sequence[Curve], mixed: bool) -> list[Series]:
    """The series of each curve: its agent, and the settings in which runs of that agent differ on some game.

    Settings that make an agent a different one are named even if all runs share them, but not at their default, so
    that the plain agent has its plain name. Other settings have no plain value, because presets differ in them.
    """
    values: dict[tuple[str, str, str], set[str]] = {}
    for curve in curves:
        for name, value in curve.learned_with.items():
            if name not in TUNED:
                values.setdefault((curve.agent, curve.env, name), set()).add(repr(value))
    differ = {(agent, name) for (agent, _, name), found in values.items() if len(found) > 1}
    protocols: Collection[ScoringProtocol] = {curve.protocol for curve in curves} if mixed else ()
    series = []
    for curve in curves:
        settings = tuple(
            (name, value)
            for name, value in curve.learned_with.items()
            if (value != DEFAULTS[name] if SETTINGS[name].scoring == "variant" else (curve.agent, name) in differ)
        )
        series.append(Series(curve.agent, settings, curve.protocol.difference(protocols)))
    return series
