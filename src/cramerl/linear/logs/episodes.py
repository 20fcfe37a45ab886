"""Episodes: which rows are transitions, what follows them, and how much a row that ended weighs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats
from cramerl.linear.logs.clocks import Shares
from cramerl.linear.logs.layout import LogLayout
from cramerl.linear.logs.observations import Observations
from cramerl.linear.logs.records import Records

# Rewards whose squares are still far from the largest number there is.
_LARGEST_REWARD = 1e100


class Episodes(NamedTuple):
    """A block of whole episodes: m observations and n transitions, sorted by episode and time."""

    observations: Observations
    """(m,) the states seen in this block."""
    current: NDArray[np.intp]
    """(n,) for each transition, the row of its state in the observations."""
    following: NDArray[np.intp]
    """(n,) the row of its next state; that of its state where the return ended."""
    actions: NDArray[Any] | None
    """(n,) codes, indices into the levels of the log's actions; or (n, A) numbers."""
    rewards: Floats
    terminated: NDArray[np.bool_]
    discounts: Floats | None
    """(n,) the discount of what follows, where the log has a column of it."""
    weights: Floats
    """(n,) the weight of the row, times the share that makes up for cut episodes where the return ended."""
    propensities: Floats | None
    """(n,) the probability of the action under the policy that was logged."""
    episode: NDArray[np.intp]
    """(n,) the number of the episode, in the order of the log."""
    step: NDArray[np.intp]
    """(n,) 0 for the first transition of the episode."""
    complete: NDArray[np.bool_]
    """(n,) whether the end of the episode is in the log."""


class Outline(NamedTuple):
    """What each of m rows of whole episodes is."""

    first: NDArray[np.bool_]
    last: NDArray[np.bool_]
    final: NDArray[np.bool_]
    """The last observation of an episode, which is no transition."""
    ended: NDArray[np.bool_]
    """A transition after which nothing follows."""
    cut: NDArray[np.bool_]
    """A transition whose next state is not in the log."""
    step: NDArray[np.intp]
    number: NDArray[np.intp]
    """Of the episode, from 0 in these rows."""

    @property
    def unused(self) -> NDArray[np.bool_]:
        """Final observations that are nobody's next state."""
        return self.final & (self.first | np.roll(self.ended, 1))

    @property
    def complete(self) -> NDArray[np.bool_]:
        """(episodes,) whether the end is in the log."""
        return np.bincount(self.number, weights=self.ended) > 0


def outline(records: Records, layout: LogLayout) -> Outline:
    """What the rows are; ValueError for values that are missing or not allowed."""
    first = np.ones(records.num_rows, dtype=bool)
    first[1:] = records.episode[1:] != records.episode[:-1]
    last = np.roll(first, -1)
    final = np.zeros(records.num_rows, dtype=bool) if layout.next_state else _without_action(records, last, layout)
    ended = records.terminated & ~final
    ended[:-1] |= (records.terminated & final & ~first)[1:]
    before_end = last | np.roll(final & ~first, -1)
    _require_last("terminated", layout.terminated, ended & ~before_end)
    _require_last("truncated", layout.truncated, records.truncated & ~before_end)
    cut = last & ~ended & ~final if not layout.next_state else np.zeros(records.num_rows, dtype=bool)
    number = np.cumsum(first) - 1
    step = np.arange(records.num_rows) - np.flatnonzero(first)[number] if records.num_rows else number
    found = Outline(first, last, final, ended, cut, step, number)
    _require_values(records, found, layout)
    return found


def episodes_of(records: Records, found: Outline, shares: Shares | None) -> Episodes:
    """The transitions of rows of whole episodes; ``shares`` says how often the rows that go on are cut."""
    rows = np.flatnonzero(~found.final & ~found.cut)
    observations, current, following = _states(records, found, rows)
    weights = np.ones(len(rows)) if records.weights is None else records.weights[rows]
    ended = found.ended[rows]
    if shares is not None:
        weights = np.where(ended, weights * (1 - shares.at(clock_values(shares.clock, records, found)[rows])), weights)
    return Episodes(
        observations,
        current,
        np.where(ended, current, following),
        None if records.actions is None else records.actions[rows],
        records.rewards[rows],
        ended,
        None if records.discounts is None else records.discounts[rows],
        weights,
        None if records.propensities is None else records.propensities[rows],
        records.episode[rows].astype(np.intp),
        found.step[rows],
        found.complete[found.number[rows]] if len(rows) else np.zeros(0, dtype=bool),
    )


def clock_values(clock: str, records: Records, found: Outline) -> Floats:
    """(m,) the value of a clock in each row."""
    if clock == "time" and records.time is not None:
        return records.time.astype(np.float64)
    return found.step.astype(np.float64)


def _states(
    records: Records, found: Outline, rows: NDArray[np.intp]
) -> tuple[Observations, NDArray[np.intp], NDArray[np.intp]]:
    """The observations, and for each transition the rows of its state and of its next state among them."""
    if records.following is None:
        used = ~found.unused
        observations = records.observations if used.all() else records.observations.take(used)
        current = (np.cumsum(used) - 1)[rows]
        return observations, current, current + 1
    goes_on = ~found.ended
    states, following = records.observations, records.following.take(goes_on)
    observations = Observations.join([states, following])
    return observations, rows, records.num_rows + (np.cumsum(goes_on) - 1)[rows]


def _without_action(records: Records, last: NDArray[np.bool_], layout: LogLayout) -> NDArray[np.bool_]:
    """Last rows in which nothing was done: no reward, or no action and a reward of zero."""
    no_reward, no_action = np.isnan(records.rewards), _missing_actions(records)
    if (lost := last & no_action & ~no_reward & (records.rewards != 0)).any():
        raise ValueError(
            f"action must not be missing where there is a reward, got {int(lost.sum())} last rows without one, "
            f"where {layout.reward!r} is {records.rewards[lost][0]:g} for example"
        )
    return last & (no_reward | no_action)


def _missing_actions(records: Records) -> NDArray[np.bool_]:
    if records.actions is None:
        return np.zeros(records.num_rows, dtype=bool)
    return np.asarray(records.actions < 0 if records.actions.ndim == 1 else np.isnan(records.actions).any(axis=1))


def _require_last(argument: str, names: tuple[str, ...], wrong: NDArray[np.bool_]) -> None:
    if wrong.any():
        column = " or ".join(map(repr, names))
        raise ValueError(
            f"{argument} must be true only in the last row of an episode, got {int(wrong.sum())} other rows where "
            f"{column} is true: episode= must tell apart what is played after an end"
        )


def _require_values(records: Records, found: Outline, layout: LogLayout) -> None:
    """Raise ValueError if a value that is needed is missing or outside what is allowed."""
    acts, used = ~found.final, ~found.unused
    _require_numbers("reward", layout.reward, records.rewards[acts])
    if (large := np.abs(records.rewards[acts]) > _LARGEST_REWARD).any():
        size = np.abs(records.rewards[acts][large]).max()
        raise ValueError(f"reward must be less than {_LARGEST_REWARD:g} in size, got {size:g}")
    if (missing := int((_missing_actions(records) & acts).sum())) and layout.action:
        names = ", ".join(map(repr, layout.action))
        raise ValueError(f"action must not have missing values, got {missing} rows with one in {names}")
    _require_observations("state", records.observations, used, layout, layout.state)
    if records.following is not None:
        _require_observations("next_state", records.following, ~found.ended, layout, layout.next_state)
    bounds = {"discount": (records.discounts, "in [0, 1]"), "propensity": (records.propensities, "in (0, 1]")}
    bounds["weight"] = records.weights, ">= 0"
    for argument, (values, allowed) in bounds.items():
        if values is not None:
            name = getattr(layout, argument)
            _require_numbers(argument, name, values[acts])
            low = values[acts] <= 0 if argument == "propensity" else values[acts] < 0
            if (wrong := low | ((values[acts] > 1) & (argument != "weight"))).any():
                raise ValueError(
                    f"{argument} must hold numbers {allowed}, got {values[acts][wrong][0]:g} in column {name!r}"
                )


def _require_observations(
    argument: str, observations: Observations, used: NDArray[np.bool_], layout: LogLayout, names: tuple[str, ...]
) -> None:
    numbers, codes, _ = observations if used.all() else observations.take(used)
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(numbers.sum()) and (codes >= 0).all():  # the usual case is kept cheap
            return
    coded = [name in layout.categorical for name in layout.state]
    for j, name in enumerate(name for name, code in zip(names, coded, strict=True) if not code):
        _require_numbers(argument, name, numbers[:, j])
    for j, name in enumerate(name for name, code in zip(names, coded, strict=True) if code):
        if missing := int((codes[:, j] < 0).sum()):
            raise ValueError(f"{argument} must not have missing values, got {missing} in column {name!r}")


def _require_numbers(argument: str, name: str, values: Floats) -> None:
    if missing := int(np.isnan(values).sum()):
        raise ValueError(f"{argument} must not have missing values, got {missing} in column {name!r}")
    if np.isinf(values).any():
        raise ValueError(f"{argument} must be finite, got {values[np.isinf(values)][0]} in column {name!r}")
