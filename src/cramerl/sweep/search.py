"""Search over settings: which to try next, from how those before have done.

Trials are asked for in batches. A batch follows from the seed of the search, its number and the scores before it, and
from nothing else: not from how many runs are done at once, nor from how often the search was stopped. So what there is
to remember are the settings that were tried (``search.json``); their scores are in the records of their runs.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cramerl._files import write_json
from cramerl.evidence.curves import final_score, read_curves
from cramerl.runs.config import TrainConfig
from cramerl.runs.folder import read_object
from cramerl.runs.presets import applies
from cramerl.sweep.folder import survey
from cramerl.sweep.plan import Sweep, identity, wanted_runs

SEARCH = "search.json"
_FORMAT = 1
_DIGITS = 3  # to which a number in a range is tried: no result depends on more, and folders are named by them
Settings = dict[str, Any]
Place = tuple[str, str]  # agent and environment


class Range(NamedTuple):
    """Numbers to choose from; evenly in their logarithms where they span a factor of ten or more.

    Attributes:
        low: the smallest.
        high: the largest.
        whole: integers only.
    """

    low: float
    high: float
    whole: bool

    @property
    def log(self) -> bool:
        """Whether factors count, not differences."""
        return self.low > 0 and self.high / self.low >= 10


Space = Mapping[str, Range | tuple[Any, ...]]


class Search:
    """A search in the folder of a sweep, for each agent in each environment on its own.

    Args:
        out: folder of the sweep.
        space: what to choose from, by setting.
        sweep: everything else about the trials; the score of one is the mean over the seeds.
        trials: how many, for each agent in each environment.
        batch: how many are asked for at once.
        seed: of the search.
    """

    def __init__(self, out: Path, space: Space, sweep: Sweep, *, trials: int, batch: int, seed: int):
        self._out, self._space, self._asked = out, space, sweep
        self._places = [(agent, env) for env in sweep.envs for agent in sweep.agents]
        self._most, self._batch, self._seed = trials, batch, seed
        self._tried = self._read()

    @property
    def tried(self) -> dict[Place, tuple[Settings, ...]]:
        """Settings that were asked for so far."""
        return {place: tuple(self._tried.get(place, [])) for place in self._places}

    @property
    def left(self) -> int:
        """How many trials are still to be asked for, everywhere together."""
        return sum(max(0, self._most - len(self.tried[place])) for place in self._places if self._space_of(place))

    def sweep(self, *, keep: bool = True) -> Sweep:
        """A sweep of what was asked for so far, a first batch where that is nothing yet.

        Args:
            keep: write the first batch down. It follows from the seed alone, so it is the same when asked for again.
        """
        self._ask([place for place, trials in self.tried.items() if not trials], keep)
        return dataclasses.replace(self._asked, variants={p: trials or [{}] for p, trials in self.tried.items()})

    def ask(self) -> bool:
        """Ask for another batch everywhere, once all trials before have ended; False if there are enough."""
        return self._ask(self._places, keep=True)

    def _ask(self, places: Sequence[Place], keep: bool) -> bool:
        more = False
        for place in places:
            tried, space = self._tried.setdefault(place, []), self._space_of(place)
            count = min(self._batch - len(tried) % self._batch, self._most - len(tried))
            if count > 0 and space:
                history = list(zip(tried, self.scores(place), strict=True))
                tried += suggest(space, history, count, [self._seed, len(tried)])
                more = True
        if more and keep:
            self._write()
        return more

    def scores(self, place: Place) -> list[float | None]:
        """Mean over seeds of the final score of each trial; None where a run is not finished, failed or diverged."""
        cells = {(self._out / cell.folder).resolve() for cell in survey(self._out) if cell.finished}
        curves = [c for c in read_curves([self._out]) if (c.agent, c.env) == place] if cells else []
        curves = [curve for curve in curves if curve.source.resolve() in cells]
        # By the whole run: the folder may hold others that differ in what is not searched.
        known = {identity(curve.config): final_score(curve) for curve in curves}
        found = []
        for settings in self._tried.get(place, []):
            its = [known.get(identity(run), math.nan) for run in self._runs(place, settings)]
            mean = sum(its) / len(its)
            found.append(None if math.isnan(mean) else mean)
        return found

    def _runs(self, place: Place, settings: Settings) -> list[TrainConfig]:
        """The runs of a trial, one for each seed."""
        agent, env = place
        changes = {name: value for name, value in self._asked.changes.items() if applies(name, agent, env)}
        only = {"agents": (agent,), "envs": (env,), "changes": changes, "variants": {place: [settings]}}
        return wanted_runs(dataclasses.replace(self._asked, **only))

    def _space_of(self, place: Place) -> Space:
        return {name: values for name, values in self._space.items() if applies(name, *place)}

    def _read(self) -> dict[Place, list[Settings]]:
        if not (self._out / SEARCH).exists():
            return {}

        def checked(content: dict[str, Any]) -> dict[Place, list[Settings]]:
            expected = {"format": _FORMAT, **self._identity()}
            for name, value in expected.items():
                if content.get(name) != value:
                    raise ValueError(f"{name} was {content.get(name)!r}, and now is {value!r}; take another folder")
            return {(one["agent"], one["env"]): one["trials"] for one in content["searches"]}

        return read_object(self._out / SEARCH, checked)

    def _write(self) -> None:
        searches = [{"agent": agent, "env": env, "trials": trials} for (agent, env), trials in self._tried.items()]
        write_json(self._out / SEARCH, {"format": _FORMAT, **self._identity(), "searches": searches})

    def _identity(self) -> dict[str, Any]:
        """What a search may not change halfway."""
        space = {name: list(values) for name, values in self._space.items()}
        return {"space": space, "seed": self._seed, "batch": self._batch, "seeds": sorted(self._asked.seeds)}


def suggest(
    space: Space, history: Sequence[tuple[Settings, float | None]], count: int, seed: Sequence[int]
) -> list[Settings]:
    """Settings to try next, by Optuna's tree-structured Parzen estimator.

    Args:
        space: what to choose from, by setting.
        history: settings that were tried, with their scores; one that failed counts as the worst there is.
        count: how many.
        seed: numbers from which everything random follows.
    """
    import numpy as np

    optuna = importlib.import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {name: _distribution(optuna.distributions, values) for name, values in space.items()}
    number = int(np.random.SeedSequence(list(seed)).generate_state(1)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what of it is still an experiment
        sampler = optuna.samplers.TPESampler(seed=number, multivariate=True, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    worst = min((score for _, score in history if score is not None), default=0.0)
    for settings, score in history:
        value = worst if score is None else score
        study.add_trial(optuna.trial.create_trial(params=settings, distributions=distributions, value=value))
    asked = [study.ask(distributions).params for _ in range(count)]
    return [{name: _rounded(params[name], space[name]) for name in space} for params in asked]


def _distribution(kinds: Any, values: Range | tuple[Any, ...]) -> Any:
    if not isinstance(values, Range):
        return kinds.CategoricalDistribution(list(values))
    if values.whole:
        return kinds.IntDistribution(int(values.low), int(values.high), log=values.log)
    return kinds.FloatDistribution(values.low, values.high, log=values.log)


def _rounded(value: Any, values: Range | tuple[Any, ...]) -> Any:
    """A value in few digits: of itself where factors count, else of the width of its range, which may be narrow."""
    if not isinstance(values, Range) or values.whole:
        return value
    if values.log:
        short = float(f"{value:.{_DIGITS}g}")
    else:
        short = round(float(value), _DIGITS - round(math.log10(values.high - values.low)))
    return min(max(short, values.low), values.high)
