"""From the curves of a study to its scores: which runs are compared, at how many steps, with which settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl.deep.envs.names import game_name
from cramerl.evidence.curves import Curve, Study, area_under_curve, common_steps, final_score, require_one_protocol
from cramerl.evidence.protocols import Protocol
from cramerl.evidence.published import RANDOM_HUMAN
from cramerl.evidence.statistics import normalise
from cramerl.runs.config import AGENTS, TrainConfig

Array = NDArray[np.float64]
# Settings whose values are tried out: tables take the best, figures show all.
SWEPT = ("learning_rate", "mass_penalty", "mass_penalty_scale", "normalisation")
# Settings that make another agent of it, whatever a preset has.
_OWN = ("base_distribution", "mean_weight")
_DEFAULTS = {setting.name: setting.default for setting in fields(TrainConfig) if setting.name in _OWN}
_FEW_SEEDS = 5  # below it a bootstrap has hardly anything to draw from


class Series(NamedTuple):
    """What goes by one name in tables and figures: an agent, and what sets it apart from its variants.

    Attributes:
        agent: its agent.
        settings: names and values, by name.
        protocol: in words, where runs of several protocols stand beside each other.
    """

    agent: str
    settings: tuple[tuple[str, Any], ...] = ()
    protocol: str = ""

    @property
    def variant(self) -> str:
        """What sets it apart, in words; nothing for the plain agent."""
        words = [f"{name} {_word(value)}" for name, value in self.settings]
        return ", ".join(filter(None, [*words, self.protocol]))

    @property
    def label(self) -> str:
        """Its name."""
        return f"{self.agent}, {self.variant}" if self.variant else self.agent

    def beside(self, other: Series) -> str:
        """Its name where the other's was just said: of variants with the same settings, those that differ."""
        if self.agent != other.agent or [n for n, _ in self.settings] != [n for n, _ in other.settings]:
            return self.label
        own = tuple(pair for pair in self.settings if pair not in other.settings)
        return Series(self.agent, own, self.protocol if self.protocol != other.protocol else "").variant


@dataclass(frozen=True, eq=False)
class Cell:
    """Runs of one series on one game that differ in nothing but their seed.

    Attributes:
        series: whose they are.
        env: the game.
        curves: the runs that have a score, or that diverged.
        scores: (runs,) their final scores, NaN where one diverged.
        steps: where they are taken to end.
        tried: how many settings of this series and game were tried.
    """

    series: Series
    env: str
    curves: tuple[Curve, ...]
    scores: Array
    steps: int
    tried: int

    @property
    def mean(self) -> float:
        """Mean score over seeds."""
        return float(self.scores.mean())

    @property
    def whole(self) -> Array:
        """Its runs' means over all their steps."""
        return np.array([area_under_curve(curve, self.steps) for curve in self.curves])

    @property
    def diverged(self) -> int:
        """How many of its runs diverged."""
        return sum(curve.diverged for curve in self.curves)

    def setting(self, name: str) -> Any:
        """A setting all its runs share."""
        return self.curves[0].settings[name]

    @property
    def penalty(self) -> float:
        """S51's lambda in the orthonormal convention: K times the number where it is on the total mass."""
        total = self.setting("mass_penalty_scale") == "total"
        return self.setting("mass_penalty") * (self.setting("num_atoms") if total else 1)


@dataclass(frozen=True, eq=False)
class Summary:
    """The scores of one study.

    Attributes:
        study: its folder, name and command.
        title: its name, with the family where a folder holds several.
        family: "Atari", "MinAtar" or "other".
        tail: of the steps at the end of a run that is scored.
        mixed: whether runs of several protocols may stand beside each other.
        games: environments in order.
        series: in order.
        cells: the best setting of each (series, game) that has a score.
        points: every setting of each of which no run diverged.
        lost: every setting of each of which a run diverged: it has no mean, and is never the best.
        steps: by game, where runs are taken to end.
        protocols: by game, how it was played and scored.
        notes: sentences on what is missing or was chosen.
    """

    study: Study
    title: str
    family: str
    tail: float
    mixed: bool
    games: list[str]
    series: list[Series]
    cells: dict[tuple[Series, str], Cell]
    points: list[Cell]
    lost: list[Cell]
    steps: dict[str, int]
    protocols: dict[str, list[Protocol]]
    notes: list[str]

    @property
    def curves(self) -> list[Curve]:
        """All runs that have a score."""
        return [curve for cell in self.points for curve in cell.curves]

    def lost_along(self, series: Series, env: str, key: Any) -> list[Any]:
        """The values of ``key(cell)``, in order, at which runs of a series on a game diverged and none is left."""
        there = {key(cell) for cell in self.points if (cell.series, cell.env) == (series, env)}
        return sorted({key(cell) for cell in self.lost if (cell.series, cell.env) == (series, env)} - there)

    def swept(self, name: str) -> bool:
        """Whether several values of a setting were tried for one series on one game."""
        values: dict[Any, set[Any]] = {}
        for cell in [*self.points, *self.lost]:
            if name == "learning_rate" or cell.series.agent == "s51":
                values.setdefault((cell.series, cell.env), set()).add(cell.setting(name))
        return any(len(found) > 1 for found in values.values())

    def best_along(self, series: Series, env: str, key: Any) -> list[tuple[Any, Cell]]:
        """For each value of ``key(cell)`` in order, the best cell of a series on a game."""
        found: dict[Any, Cell] = {}
        for cell in self.points:
            if (cell.series, cell.env) == (series, env):
                best = found.get(key(cell))
                found[key(cell)] = cell if best is None or cell.mean > best.mean else best
        return sorted(found.items(), key=lambda item: item[0])


class Normalised(NamedTuple):
    """Scores on one scale, for aggregates over games: by series one array of runs per game."""

    games: list[str]
    scores: dict[Series, list[Array]]
    words: str


def summarise(
    curves: Sequence[Curve], *, tail: float = 0.2, mix_protocols: bool = False, unfinished: bool = False
) -> list[Summary]:
    """The scores of each study among the curves; a folder with several families of environments gives one for each.

    Args:
        curves: what `read_curves` returned.
        tail: of the steps at the end of a run that is scored.
        mix_protocols: take runs of different protocols on one game as different series, in place of refusing them.
        unfinished: take runs that are not finished though others on the same game are, and score all where the shortest
            ends, in place of leaving them out.
    """
    groups: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        groups.setdefault((str(curve.study.folder), curve.protocol.family), []).append(curve)
    folders = [folder for folder, _ in groups]
    made = []
    for (folder, family), members in groups.items():
        name = members[0].study.name
        title = f"{name}: {family}" if folders.count(folder) > 1 else name
        made.append(_summary(members, title, tail, mix_protocols, unfinished))
    if not any(summary.cells for summary in made):
        lost = sum(cell.diverged for summary in made for cell in summary.lost)
        none = f"no run has one ({lost} diverged)" if lost else "no run has one"
        raise ValueError(f"RUNS must have an episode that ended in the last {tail:g} of the steps, {none}")
    return sorted(made, key=lambda summary: summary.title)


def normalised(summary: Summary) -> tuple[Normalised | None, list[str]]:
    """Scores for aggregates, or None where there is no common scale; and what was left out, in sentences."""
    games, words, notes = list(summary.games), "", []
    if not summary.mixed and len({one for env in games for one in summary.protocols[env]}) > 1:
        return None, ["There are no aggregates: games were played under different protocols (see --mix-protocols)."]
    human = summary.family == "Atari" and all(game_name(env) in RANDOM_HUMAN for env in games)
    if human:
        words = "human-normalised: 0 is random play, 1 a human tester, both measured with no-op starts"
        scale = {env: RANDOM_HUMAN[game_name(env) or env] for env in games}
    else:
        scale, words, notes = _reference_scale(summary)
        games = list(scale)
    chosen, series = full_table(summary, games)
    if not series:
        return None, [*notes, "There are no aggregates: no game is left on which scores have a common scale."]
    if len(series) == 1 and not human:
        return None, [*notes, f"There are no aggregates: {series[0].label} has nothing to be compared with."]
    left_games = [env for env in games if env not in chosen]
    left = [one.label for one in summary.series if one not in series]
    if left_games:
        notes.append(f"Aggregates leave out {', '.join(left_games)}: not every agent shown there has played them.")
    if left:
        notes.append(f"Aggregates leave out {'; '.join(left)}: not all of {', '.join(chosen)} were played.")
    scores = {one: [normalise(summary.cells[one, env].scores, *scale[env]) for env in chosen] for one in series}
    return Normalised(chosen, scores, words), notes


def full_table(summary: Summary, games: list[str]) -> tuple[list[str], list[Series]]:
    """The games and series of the largest full table of scores."""
    played = {one: frozenset(env for env in games if (one, env) in summary.cells) for one in summary.series}
    options = {*played.values(), frozenset(games).intersection(*played.values())} - {frozenset()}

    def size(option: frozenset[str]) -> tuple[int, int, list[str]]:
        number = sum(option <= envs for envs in played.values())
        return (number * len(option), number, sorted(option))

    if not options:
        return [], []
    best = max(options, key=size)
    return [env for env in games if env in best], [one for one in summary.series if best <= played[one]]


def _reference_scale(summary: Summary) -> tuple[dict[str, tuple[float, float]], str, list[str]]:
    """By game (0, mean score of DQN), or of the best agent if DQN has not played everything."""
    dqn = Series("dqn")
    has_dqn = all((dqn, env) in summary.cells for env in summary.games)
    scale, notes = {}, []
    for env in summary.games:
        means = {one: cell.mean for (one, game), cell in summary.cells.items() if game == env}
        reference = means[dqn] if has_dqn else max(means.values())
        if reference > 0:
            scale[env] = (0.0, reference)
        else:
            notes.append(f"Aggregates leave out {env}: the score to divide by, {reference:.4g}, is not positive.")
    whose = "dqn" if has_dqn else "the best agent (there is no dqn that has played them all)"
    return scale, f"scores divided by the mean score of {whose} on the same game", notes


def _summary(curves: list[Curve], title: str, tail: float, mixed: bool, unfinished: bool) -> Summary:
    study, family, notes = curves[0].study, curves[0].protocol.family, _note_empty(curves)
    curves = [curve for curve in curves if curve.last_step]
    games = sorted({curve.env for curve in curves})
    by_game = {env: [curve for curve in curves if curve.env == env] for env in games}
    if not unfinished:
        some = {env for env, found in by_game.items() if any(map(_finished, found))}
        left = [curve for curve in curves if curve.env in some and not _finished(curve)]
        notes += _note_unfinished("Left out, for others on the game are finished (see --unfinished)", left)
        curves = [curve for curve in curves if curve.env not in some or _finished(curve)]
        by_game = {env: [curve for curve in curves if curve.env == env] for env in games}
    protocols = {env: sorted({curve.protocol for curve in by_game[env]}) for env in games}
    if not mixed:
        for env in games:
            require_one_protocol(env, by_game[env], "; --mix-protocols shows them beside each other")
    steps = {env: common_steps(by_game[env]) for env in games}
    notes += [note for env in games for note in _note_lengths(env, by_game[env])]
    notes += _note_unfinished("Not finished", curves)
    series_of = _series(curves, {curve.protocol for curve in curves} if mixed else set())
    all_cells, without = _cells(curves, series_of, steps, tail)
    points, lost = ([cell for cell in all_cells if (cell.diverged > 0) == bad] for bad in (False, True))
    notes += _note_without_score(without, tail) + _note_diverged(lost)
    cells: dict[tuple[Series, str], Cell] = {}
    for cell in points:
        best = cells.get((cell.series, cell.env))
        if best is None or cell.mean > best.mean:
            cells[cell.series, cell.env] = cell
    if any(cell.tried > 1 for cell in cells.values()):
        notes.append(
            "Several settings were tried of an agent on a game. Tables and curves show the best of them, chosen by "
            "these very scores: a little too good. Runs with other seeds at the chosen setting say more."
        )
    single = sum(len(cell.scores) == 1 for cell in points)
    if single:
        notes.append(f"One seed: no interval. That is so for {single} of {len(points)} combinations of agent and game.")
    if any(1 < len(cell.scores) < _FEW_SEEDS for cell in points):
        notes.append(
            f"Fewer than {_FEW_SEEDS} seeds: bootstrap intervals of so few are too narrow, and show less than it seems."
        )
    series = sorted({cell.series for cell in points}, key=_order)
    games = [env for env in games if any(cell.env == env for cell in points)]
    return Summary(study, title, family, tail, mixed, games, series, cells, points, lost, steps, protocols, notes)


def _order(series: Series) -> tuple[Any, ...]:
    agent = series.agent
    place = AGENTS.index(agent) if agent in AGENTS else len(AGENTS)
    # Numbers by size; settings may also be words, or sizes of layers.
    values = [(n, (0, v, "") if isinstance(v, (int, float)) else (1, 0, repr(v))) for n, v in series.settings]
    return place, agent, len(values), values, series.protocol


def _series(curves: list[Curve], protocols: set[Protocol]) -> dict[int, Series]:
    """The series of each curve, by its id: an agent is told apart by settings that differ for it on one game.

    The weight of the mean and the base distribution make another agent of it: they are named even if all runs share
    them, but
    not at their default, so that the plain agent has its plain name. Other settings have no plain value, for presets
    differ in theirs. Protocols, where several are given, tell an agent apart too.
    """
    values: dict[tuple[str, str, str], set[str]] = {}
    for curve in curves:
        for name, value in curve.learned_with.items():
            if name not in SWEPT:
                values.setdefault((curve.agent, curve.env, name), set()).add(repr(value))
    differ = {(agent, name) for (agent, _, name), found in values.items() if len(found) > 1}
    series = {}
    for curve in curves:
        mine = curve.learned_with.items()
        named = ((n, v) for n, v in mine if (v != _DEFAULTS[n] if n in _OWN else (curve.agent, n) in differ))
        protocol = curve.protocol.difference(protocols) if len(protocols) > 1 else ""
        series[id(curve)] = Series(curve.agent, tuple(named), protocol)
    return series


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else str(value)  # two values must not go by one name
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value) or "none"


def _cells(
    curves: list[Curve], series_of: dict[int, Series], steps: dict[str, int], tail: float
) -> tuple[list[Cell], list[Curve]]:
    """The runs by series, game and swept settings, and those without a score."""
    groups: dict[tuple[Any, ...], list[Curve]] = {}
    for curve in curves:
        swept = tuple(curve.learned_with.get(name) for name in SWEPT)
        groups.setdefault((series_of[id(curve)], curve.env, swept), []).append(curve)
    cells, without = [], []
    for (series, env, _), members in groups.items():
        scores = np.array([final_score(curve, tail, steps[env]) for curve in members])
        there = np.isfinite(scores) | np.array([curve.diverged for curve in members])
        without += [curve for curve, ok in zip(members, there, strict=True) if not ok]
        if there.any():
            kept = tuple(curve for curve, ok in zip(members, there, strict=True) if ok)
            tried = sum(key[:2] == (series, env) for key in groups)
            cells.append(Cell(series, env, kept, scores[there], steps[env], tried))
    return cells, without


def _note_empty(curves: Iterable[Curve]) -> list[str]:
    empty = [f"{curve.source.name}, seed {curve.seed}" for curve in curves if not curve.last_step]
    return [f"Left out, for their logs have no such rows: {_some(empty)}."] if empty else []


def _note_lengths(env: str, curves: list[Curve]) -> list[str]:
    curves = [curve for curve in curves if not curve.diverged]
    lengths = [curve.last_step for curve in curves]
    if not lengths or max(lengths) <= 1.01 * min(lengths):
        return []
    shortest = curves[int(np.argmin(lengths))]
    return [
        f"{env}: runs have {min(lengths):,} to {max(lengths):,} steps, so all are scored at {min(lengths):,}, where "
        f"the shortest ends ({shortest.source.name}, seed {shortest.seed})."
    ]


def _finished(curve: Curve) -> bool:
    return curve.last_step >= curve.settings["steps"] or curve.diverged


def _note_unfinished(words: str, curves: list[Curve]) -> list[str]:
    names = dict.fromkeys(
        f"{curve.source.parent.name}/{curve.source.name} ({curve.last_step:,} of {curve.settings['steps']:,} steps)"
        for curve in curves
        if not _finished(curve)
    )
    return [f"{words}: {_some(list(names))}."] if names else []


def _note_without_score(curves: list[Curve], tail: float) -> list[str]:
    names = [f"{curve.agent} on {curve.env}, seed {curve.seed}" for curve in curves]
    return [f"No score, for no episode ended in the last {tail:g} of the steps: {_some(names)}."] if names else []


def _note_diverged(cells: list[Cell]) -> list[str]:
    if not cells:
        return []
    names = []
    for cell in cells:
        swept = cell.curves[0].learned_with
        words = [f"{name} {_word(swept[name])}" for name in SWEPT if name in swept]
        runs = f"{cell.diverged} of {len(cell.curves)} seeds"
        names.append(f"{cell.series.label} on {cell.env} with {', '.join(words)} ({runs})")
    return [f"Diverged, so that there is no score and the setting is not chosen: {_some(names)}."]


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more
