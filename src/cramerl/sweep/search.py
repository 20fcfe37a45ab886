"""A search over settings, by Optuna: which to try next, given the scores of those before.

Optuna keeps the trials in a file of the sweep's folder. They are asked for in batches. A trial follows from the seed of
the search, its number and the scores of the batches before it: neither from how many jobs run at once, nor from how
often the search was stopped.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cramerl._extras import load_library
from cramerl._folders import LOG_BYTES, open_inside
from cramerl.evidence.curves import final_score, read_curves
from cramerl.runs.presets import applies
from cramerl.sweep.folder import find_runs
from cramerl.sweep.plan import Sweep, identity, wanted_runs

SEARCH = "search.log"
_DIGITS = 3  # of the numbers that are tried: results do not depend on more, and folders are named by them


class Range(NamedTuple):
    """Numbers from ``low`` to ``high``; factors count, not differences, where they span a factor of ten or more."""

    low: float
    high: float
    integer: bool

    @property
    def log(self) -> bool:
        """Whether factors count."""
        return self.low > 0 and self.high / self.low >= 10

    def rounded(self, value: float) -> float:
        """A value in few digits: of the value where factors count, else of the width of the range."""
        if self.integer:
            return value
        digits = _DIGITS - round(math.log10(self.high - self.low))
        short = float(f"{value:.{_DIGITS}g}") if self.log else round(float(value), digits)
        return min(max(short, self.low), self.high)


Space = Mapping[str, Range | tuple[Any, ...]]


class Search:
    """A search in the folder of a sweep, separate for each agent in each environment.

    Args:
        out: folder of the sweep.
        space: values to choose from, by setting.
        sweep: everything else about the trials; the score of a trial is the mean over its seeds.
        trials: how many, for each agent in each environment.
        batch: how many are asked for at once.
        seed: of the search.
        file: where Optuna keeps the trials; by default in ``out``.
    """

    def __init__(
        self, out: Path, space: Space, sweep: Sweep, *, trials: int, batch: int, seed: int, file: Path | None = None
    ):
        self._optuna = optuna = load_library("optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._out, self._sweep, self._trials, self._batch, self._seed = out, sweep, trials, batch, seed
        file = file or out / SEARCH
        with open_inside(file.parent, file.name, "update", most=LOG_BYTES):  # which refuses links; Optuna follows them
            pass
        try:
            storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(file)))
        except (ValueError, TypeError, LookupError, AttributeError, AssertionError, RecursionError) as error:
            raise ValueError(f"{file} cannot be used: it is no record of a search ({error})") from error
        self._studies: dict[tuple[str, str], Any] = {}
        self._spaces: dict[tuple[str, str], Space] = {}
        settings = {"space": {name: list(values) for name, values in space.items()}, "seed": seed, "batch": batch}
        settings["seeds"] = sorted(sweep.seeds)
        for env in sweep.envs:
            for agent in sweep.agents:
                study = optuna.create_study(
                    storage=storage, study_name=f"{agent} on {env}", direction="maximize", load_if_exists=True
                )
                for name, value in settings.items():
                    before = study.user_attrs.get(name, value)
                    if before != value:
                        raise ValueError(f"{file}: {name} was {before!r} and is now {value!r}; use another folder")
                    if name not in study.user_attrs:
                        study.set_user_attr(name, value)
                self._studies[agent, env] = study
                self._spaces[agent, env] = {n: values for n, values in space.items() if applies(n, agent, env)}
        for place, tried in self.tried.items():
            if not tried or len(tried) % batch:  # the process may have been killed in the middle of a batch
                self._ask(place)

    @property
    def tried(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """The settings asked for so far, by agent and environment."""
        return {place: [trial.user_attrs["settings"] for trial in self._asked(place)] for place in self._studies}

    @property
    def left(self) -> int:
        """How many trials are still to be asked for."""
        return sum(max(0, self._trials - len(tried)) for place, tried in self.tried.items() if self._spaces[place])

    def sweep(self) -> Sweep:
        """A sweep of all trials so far."""
        return dataclasses.replace(self._sweep, variants={place: tried or [{}] for place, tried in self.tried.items()})

    def ask(self) -> bool:
        """Score all trials so far, which must have ended, and ask for another batch; False if there are enough."""
        before = self.left
        for place, study in self._studies.items():
            for trial, score in zip(self._asked(place), self.scores(place), strict=True):
                if not trial.state.is_finished():
                    # A trial without a score counts as the worst; only the order of scores matters to the sampler.
                    study.tell(trial.number, -math.inf if score is None else score)
            self._ask(place)
        return self.left < before

    def scores(self, place: tuple[str, str]) -> list[float | None]:
        """Mean score over the seeds of each trial; None if a run is not finished, failed or diverged."""
        known: dict[Any, float] = {}
        if any(run.finished for run in find_runs(self._out)):
            known = {identity(curve.config): final_score(curve) for curve in read_curves([self._out]) if curve.finished}
        means, (agent, env) = [], place
        changes = {name: value for name, value in self._sweep.changes.items() if applies(name, agent, env)}
        for settings in self.tried[place]:
            only = {"agents": (agent,), "envs": (env,), "changes": changes, "variants": {place: [settings]}}
            # By all settings: the folder may hold other runs, which differ in what is not searched.
            runs = wanted_runs(dataclasses.replace(self._sweep, **only))
            means.append(float(np.mean([known.get(identity(run), math.nan) for run in runs])))
        return [None if math.isnan(mean) else mean for mean in means]

    def describe_best(self) -> Iterator[str]:
        """The best settings so far, one line for each agent in each environment that has any score."""
        for (agent, env), tried in self.tried.items():
            scores = {number: x for number, x in enumerate(self.scores((agent, env))) if x is not None}
            if scores:
                best = max(scores, key=scores.__getitem__)
                settings = ", ".join(f"{name} {value}" for name, value in tried[best].items())
                found = f"{settings}, score {scores[best]:,.2f} (trial {best})"
                yield f"best of {len(scores)} trials of {agent} on {env}: {found}"

    def _asked(self, place: tuple[str, str]) -> list[Any]:
        """Optuna's trials; one during whose creation the process was killed has no settings and is left out."""
        return [trial for trial in self._studies[place].trials if "settings" in trial.user_attrs]

    def _ask(self, place: tuple[str, str]) -> None:
        """Ask for the rest of a batch."""
        study, space, tried = self._studies[place], self._spaces[place], len(self._asked(place))
        kinds, distributions = self._optuna.distributions, {}
        for name, values in space.items():
            if not isinstance(values, Range):
                distributions[name] = kinds.CategoricalDistribution(values)
            elif values.integer:
                distributions[name] = kinds.IntDistribution(int(values.low), int(values.high), log=values.log)
            else:
                distributions[name] = kinds.FloatDistribution(values.low, values.high, log=values.log)
        count = min(self._batch - tried % self._batch, self._trials - tried) if space else 0
        for number in range(tried, tried + count):
            # A new sampler for each trial: a search that was stopped in the middle of a batch continues as if not.
            seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # these options are experimental
                study.sampler = self._optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
            params = (trial := study.ask(distributions)).params
            settings = {n: v.rounded(params[n]) if isinstance(v, Range) else params[n] for n, v in space.items()}
            trial.set_user_attr("settings", settings)
