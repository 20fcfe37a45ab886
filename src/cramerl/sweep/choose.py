"""Settings chosen by an earlier sweep: those of its best variant, for each agent and environment.

The seeds that chose must not report: on them the best of several variants looks better than it is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from cramerl.evidence.curves import Curve, common_steps, final_score, read_curves, require_one_protocol
from cramerl.runs.config import TrainConfig
from cramerl.runs.presets import applies
from cramerl.sweep.folder import RECORD, find_runs, read_record
from cramerl.sweep.plan import AXES

Variant = tuple[tuple[str, Any], ...]  # settings by name


class Choice(NamedTuple):
    """What was chosen for one agent in one environment.

    Attributes:
        agent: the agent.
        env: the environment.
        settings: those of the best variant.
        score: its score, a mean over seeds.
        seeds: those that chose.
        others: scores of the other variants, the best first; NaN if a run had no episode that ended in its last fifth,
            None if a run failed or diverged.
    """

    agent: str
    env: str
    settings: dict[str, Any]
    score: float
    seeds: list[int]
    others: list[tuple[dict[str, Any], float | None]]

    def to_json(self, folder: Path) -> dict[str, Any]:
        """For the record of a sweep; JSON has no NaN."""
        others = [{"settings": s, "score": None if x is None or math.isnan(x) else x} for s, x in self.others]
        return self._asdict() | {"others": others, "from": str(folder)}


def best_of(
    folder: Path, agents: Iterable[str], envs: Collection[str], seeds: Collection[int], *, one_for_all: bool = False
) -> list[Choice]:
    """The best variant of each agent in each environment: the one with the highest mean score over seeds.

    A variant with a run that failed or diverged, or that had no episode end in its last fifth, is not chosen. All
    others must be finished, with the same seeds and by one protocol; they are scored at the length of the shortest.

    Args:
        folder: an earlier sweep.
        agents: those to choose for.
        envs: likewise.
        seeds: those that will report; none of them may have chosen.
        one_for_all: whether an agent gets one variant for all environments: the one with the highest mean over them of
            its score divided by the agent's best score there. A variant that cannot be chosen in one environment
            cannot be chosen.
    """
    if not (folder / RECORD).is_file():
        raise ValueError(f"{folder} is not the folder of a sweep: it has no {RECORD}")
    record, found = read_record(folder), find_runs(folder)
    if not found:
        raise ValueError(f"{folder} has no run yet: nothing can be chosen from it")
    failed = {job["folder"] for job in record["jobs"] if "failed" in job}
    ended = failed | {run.folder for run in found if run.finished}
    jobs = {job["folder"]: (job["agent"], job["env"]) for job in record["jobs"]}
    jobs |= {run.folder: (run.group.first.agent, run.group.first.env) for run in found}
    waiting = {place: name for name, place in jobs.items() if name not in ended}
    folders = {(folder / run.folder).resolve() for run in found}
    curves = [curve for curve in read_curves([folder]) if curve.source.resolve() in folders]
    tried: dict[str, list[_Tried]] = {}
    for agent, env in ((agent, env) for agent in agents for env in envs):
        mine = [curve for curve in curves if (curve.agent, curve.env) == (agent, env)]
        if (agent, env) in waiting:
            raise ValueError(f"{folder / waiting[agent, env]} is not finished: nothing can be chosen before it is")
        if not mine:
            raise ValueError(f"{folder} has no run of {agent} on {env} to choose from")
        names = [name for name in AXES if applies(name, agent, env)]
        names = [n for n in names if n in record["axes"] or len({getattr(c.config, n) for c in mine}) > 1]
        # A job that failed may have no curve: its settings count.
        lost = [run for state in found if state.folder in failed for run in state.group.configs]
        bad = {_variant(run, names) for run in lost if (run.agent, run.env) == (agent, env)}
        bad |= {_variant(curve.config, names) for curve in mine if curve.diverged}
        tried.setdefault(agent, []).append(_score_variants(agent, env, mine, names, bad))
    choices = []
    for several in tried.values():
        best = _best_for_all(several) if one_for_all else None
        choices += [one.choice(one.best if best is None else best) for one in several]
    again = sorted({seed for choice in choices for seed in choice.seeds} & set(seeds))
    if again:
        raise ValueError(
            f"seeds must differ from those that chose in {folder}, because on these the best looks better than it is; "
            f"got {', '.join(map(str, again[:5]))}{' ...' if len(again) > 5 else ''} again"
        )
    return choices


def describe(choice: Choice) -> str:
    """A choice in one line."""
    text = f"{choice.agent} on {choice.env}: {_settings_text(choice.settings)}, score {choice.score:,.2f}"
    tried = [f"{_settings_text(settings)} {_score_text(score)}" for settings, score in choice.others]
    return text + f" of {len(choice.seeds)} seeds" + (f" ({'; '.join(tried)})" if tried else "")


class _Tried(NamedTuple):
    """The variants of an agent in an environment: their mean scores, NaN if a run has none, and those not to choose."""

    agent: str
    env: str
    scores: dict[Variant, float]
    seeds: list[int]
    bad: set[Variant]

    @property
    def known(self) -> list[Variant]:
        """Variants with a score, the best first."""
        return sorted((v for v in self.scores if not math.isnan(self.scores[v])), key=lambda v: -self.scores[v])

    @property
    def best(self) -> Variant:
        """The best variant."""
        return self.known[0]

    def choice(self, variant: Variant) -> Choice:
        """The choice of a variant, listed with the others."""
        order = [*self.known, *(other for other in self.scores if other not in self.known)]
        others: list[tuple[dict[str, Any], float | None]] = [(dict(v), self.scores[v]) for v in order if v != variant]
        others += [(dict(other), None) for other in sorted(self.bad, key=str)]
        return Choice(self.agent, self.env, dict(variant), self.scores[variant], self.seeds, others)


def _score_variants(agent: str, env: str, curves: list[Curve], names: list[str], bad: set[Variant]) -> _Tried:
    variants: dict[Variant, list[Curve]] = {}
    for curve in curves:
        variants.setdefault(_variant(curve.config, names), []).append(curve)
    good = {variant: runs for variant, runs in variants.items() if variant not in bad}
    if not good:
        raise ValueError(f"every variant of {agent} on {env} failed or diverged: there is nothing to choose from")
    seeds = [sorted(curve.config.seed for curve in runs) for runs in good.values()]
    if any(these != seeds[0] for these in seeds):
        raise ValueError(f"the variants of {agent} on {env} must have the same seeds to be compared, got {seeds}")
    runs = [curve for runs in good.values() for curve in runs]
    require_one_protocol(env, runs)
    end = common_steps(runs)
    scores = {v: sum(final_score(curve, steps=end) for curve in runs) / len(runs) for v, runs in good.items()}
    tried = _Tried(agent, env, scores, seeds[0], bad)
    if not tried.known:
        raise ValueError(
            f"every variant of {agent} on {env} failed, diverged or has a run in whose last fifth no episode ended: "
            "there is nothing to choose from"
        )
    return tried


def _best_for_all(several: list[_Tried]) -> Variant:
    """The variant with the highest mean over environments of its score divided by the best score there."""
    agent = several[0].agent
    for one in several:
        if one.scores[one.best] <= 0:
            raise ValueError(
                f"one setting for all environments needs a best score above 0 in each, got "
                f"{one.scores[one.best]:,.2f} of {agent} on {one.env}"
            )
        if one.scores.keys() | one.bad != several[0].scores.keys() | several[0].bad:
            raise ValueError(
                f"one setting for all environments needs the same variants of {agent} in each, but they differ on "
                f"{several[0].env} and {one.env}"
            )
    common = [variant for variant in several[0].known if all(variant in one.known for one in several)]
    if not common:
        raise ValueError(f"no variant of {agent} has a score in every environment: there is nothing to choose from")
    return max(common, key=lambda v: sum(one.scores[v] / one.scores[one.best] for one in several))


def _variant(config: TrainConfig, names: list[str]) -> Variant:
    return tuple((name, getattr(config, name)) for name in names)


def _settings_text(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "settings of the sweep"


def _score_text(score: float | None) -> str:
    if score is None:
        return "failed or diverged"
    return "has no score: no episode ended in the last fifth of a run" if math.isnan(score) else f"{score:,.2f}"
