"""Which features a log's states get: those that predict the returns of held-out episodes best."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from cramerl._arrays import Floats
from cramerl.linear.logs.atoms import support_for_returns
from cramerl.linear.logs.basis import StateFeatures, candidates, state_features
from cramerl.linear.logs.log import Log
from cramerl.linear.logs.observations import Observations
from cramerl.linear.logs.returns import discounts_left, last_rows, realised_returns
from cramerl.linear.logs.rows import LogRows
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.scores import crps, pooled_crps
from cramerl.linear.support_choice import support_from_data
from cramerl.supports import Support

# Transitions that candidates are compared on, and the share of episodes that is held out.
_MOST_ROWS, _HELD_OUT = 40_000, 0.3
_ATOMS = 31
# Counts that regularisation may add to a group before the group's own rows are believed.
STRENGTHS = (1.0, 30.0)
# The same, at most, for a policy that did not make the log: regularisation draws actions to what the log did.
STRENGTH_OF_OTHERS = 0.3
_MOST_OBSERVATIONS = 50_000
# How far towards one a candidate may carry values from row to row, beyond the discount.
_MOST_DRIFT = 0.1
# How much weaker regularisation is then tried, and the share of the CRPS below which it is clearly better.
_WEAKER, _CLEARLY = 30.0, 0.99
# Episodes that it takes to hold some of them out.
LEAST_EPISODES = 10


class Candidate(NamedTuple):
    """Features that were tried, and the CRPS of their predictions on held-out episodes."""

    name: str
    strength: float
    crps: float


class Selection(NamedTuple):
    """The features that were chosen, and how well those that were tried did.

    ``pooled`` is the CRPS of one distribution for all states, ``completed`` the share of held-out rows whose return was
    cut and completed with one that a simple model predicts.
    """

    features: StateFeatures
    strength: float
    tried: tuple[Candidate, ...]
    pooled: float
    completed: float


class HeldOut(NamedTuple):
    """Episodes to fit, and those to score with a return for each of their rows."""

    fitted: Log
    scored: Log
    support: Support
    returns: Floats
    completed: float


def some_observations(log: Log) -> Observations:
    """The states of the first blocks of a log, as many as features need to find their scales."""
    parts, count = [], 0
    for block in log.blocks(_MOST_OBSERVATIONS):
        parts.append(block.observations)
        count += len(block.observations)
        if count >= _MOST_OBSERVATIONS:
            break
    return Observations.join(parts)


def choose_features(log: Log, discount: float, seed: int, copies: int = 1) -> Selection:
    """Choose the basis, its size and the regularisation by the CRPS of held-out returns.

    There will be ``copies`` of the features, as where each action has its own, so candidates have so many times fewer.
    """
    observations = some_observations(log)
    names = candidates(observations, log.schema, log.num_transitions // copies)
    held_out = split_log(log, discount, seed)
    if held_out is None:
        return Selection(state_features(names[0], observations, log.schema, seed), STRENGTHS[0], (), np.nan, np.nan)
    tried, best = [], None
    for name in names:
        features = state_features(name, observations, log.schema, seed)
        for strength in STRENGTHS:
            found = held_out_crps(held_out, features, strength, discount)
            tried.append(Candidate(name, strength, found))
            if best is None or found < best[0]:
                best = found, features, strength
    assert best is not None
    tried += _weaker(held_out, best[1], best[2], best[0], discount)
    strength = min(tried, key=lambda candidate: candidate.crps).strength
    pooled = pooled_crps(held_out.returns)
    return Selection(best[1], strength, tuple(tried), pooled, held_out.completed)


def score_features(log: Log, features: StateFeatures, discount: float, seed: int) -> Selection:
    """Choose the regularisation alone, for features that were asked for."""
    held_out = split_log(log, discount, seed)
    if held_out is None:
        return Selection(features, STRENGTHS[0], (), np.nan, np.nan)
    tried = [
        Candidate(features.name, strength, held_out_crps(held_out, features, strength, discount))
        for strength in STRENGTHS
    ]
    best = min(tried, key=lambda candidate: candidate.crps)
    tried += _weaker(held_out, features, best.strength, best.crps, discount)
    best = min(tried, key=lambda candidate: candidate.crps)
    return Selection(features, best.strength, tuple(tried), pooled_crps(held_out.returns), held_out.completed)


def _weaker(
    held_out: HeldOut, features: StateFeatures, strength: float, best: float, discount: float
) -> list[Candidate]:
    """A weaker regularisation than those of the list, where the weakest of them did best and this does clearly better.

    In an episode of many steps a group is left once for every few rows that regularisation counts for: then a little
    of it at each step moves much of the return to where returns are on average.
    """
    if strength > STRENGTHS[0]:
        return []
    found = held_out_crps(held_out, features, strength / _WEAKER, discount)
    return [Candidate(features.name, strength / _WEAKER, found)] if found < _CLEARLY * best else []


def split_log(log: Log, discount: float, seed: int) -> HeldOut | None:
    """Episodes to fit and episodes to score, drawn at random; None if there are too few, or none are known."""
    count = log.num_episodes
    if count < LEAST_EPISODES or log.rows_are_episodes:  # whose returns were not seen
        return None
    rng = np.random.default_rng(seed)
    order = rng.permutation(count)
    order = order[: max(LEAST_EPISODES, int(count * min(1.0, _MOST_ROWS / log.num_transitions)))]
    cut = max(1, int(_HELD_OUT * len(order)))
    fitted, scored = log.take(np.sort(order[cut:])), log.take(np.sort(order[:cut]))
    if not (fitted.num_transitions and scored.num_transitions):
        return None
    own, _, _ = _returns(fitted, discount)
    returns, complete, tails = _returns(scored, discount)
    if not complete.all():
        # The same returns for every candidate.
        returns = returns + np.where(complete, 0.0, tails * _completions(fitted, scored, discount, seed))
    low, high = min(own.min(), returns.min()), max(own.max(), returns.max())
    size = max(abs(low), abs(high)) or 1.0
    margin = 1e-6 * size if high > low else size
    reach = Support.uniform(low - margin, high + margin, _ATOMS)
    support = support_for_returns(reach, np.concatenate([own, returns]), _ATOMS, exact=True)
    return HeldOut(fitted, scored, support, returns, 1 - complete.mean())


def _completions(fitted: Log, scored: Log, discount: float, seed: int) -> Floats:
    """(n,) returns from where each scored row's episode leaves the log, drawn from what a simple model predicts there.

    The model averages over cells of states, so its predictions cannot run away where the log ends.
    """
    rows = LogRows(fitted, _reference(fitted, seed))
    rho = STRENGTHS[-1] / fitted.num_transitions
    support = support_from_data(rows, discount, _ATOMS, rho, tol=1e-4)
    model = DistributionalLSTD(support, discount, regularisation=rho, tol=1e-6, next_distribution="signed")
    rng, parts = np.random.default_rng([seed, 2]), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what matters is said of the features that are chosen
        model.fit_source(rows)
        for block in scored.blocks():
            lasts = last_rows(block.step)
            ends = np.repeat(block.following[lasts], np.diff(lasts, prepend=-1))
            states, place = np.unique(ends, return_inverse=True)
            heights = np.cumsum(model.predict_proba(rows.of_states(block.observations.take(states))), axis=1)[:, :-1]
            level = rng.random(len(ends))
            parts.append(support.atoms[(heights[place] < level[:, None]).sum(axis=1)])
    return np.concatenate(parts)


def _reference(log: Log, seed: int) -> StateFeatures:
    """Cells of states; of categorical columns alone, their levels."""
    size = min(100, max(2, log.num_transitions // 100))
    return state_features(f"cells:{size}", some_observations(log), log.schema, seed)


def held_out_crps(held_out: HeldOut, features: StateFeatures, strength: float, discount: float) -> float:
    """Mean CRPS, on the held-out rows, of a model with these features.

    It is infinite if the features cannot be fitted, or carry values from row to row with a factor above the discount:
    states at the ends of cut episodes then get values that grow from one row to the next.
    """
    rho = strength / held_out.fitted.num_transitions
    model = DistributionalLSTD(held_out.support, discount, regularisation=rho, tol=1e-6, next_distribution="signed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a candidate that explodes has a bad score, which says it all
        try:
            model.fit_source(LogRows(held_out.fitted, features))
        except (ValueError, np.linalg.LinAlgError):
            return np.inf
        if model.certificate_.radius > discount + _MOST_DRIFT * (1 - discount) + 1e-6:
            return np.inf
        total, first = 0.0, 0
        for _, rows in LogRows(held_out.scored, features).blocks():
            probs = model.predict_proba(rows.features)
            total += float(crps(model.support_, probs, held_out.returns[first : first + len(probs)]).sum())
            first += len(probs)
    return total / first


def _returns(log: Log, discount: float) -> tuple[Floats, np.ndarray, Floats]:
    """Of every row: the return in the log, whether it is whole, and the discount of what was cut off."""
    parts = [(*realised_returns(block, discount), discounts_left(block, discount)) for block in log.blocks()]
    returns, whole, tails = (np.concatenate(part) for part in zip(*parts, strict=True))
    return returns, whole, tails
