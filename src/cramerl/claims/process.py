"""Claims 8a to 9e: what the Bellman operator contracts (Lemma 3), and where the process converges (Theorem 1)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from cramerl._arrays import Floats
from cramerl.claims.claim import FALSE, HOLDS, ROUNDING, WITHIN_ONE, Figures, at_least, at_most, exactly, states
from cramerl.claims.setting import (
    Setting,
    bellman,
    drift,
    free_design,
    loss_step,
    mass_sq,
    one_state,
    random_setting,
    shape_sq,
    span_projection,
    unit_support,
)
from cramerl.linear.evaluation import Iterate, evaluate, projected_bellman_iterates
from cramerl.linear.examples import bound_counterexample
from cramerl.linear.processes import MarkovRewardProcess
from cramerl.measures import with_unit_mass

_TRIALS = 60


@states(
    "8a",
    "Lemma 3, mass part: T' does not expand the ξ-weighted norm along e",
    HOLDS,
    "Nothing to correct; equality where the difference in mass is the same at every state.",
)
def _claim_8a() -> Figures:
    cases = _random_differences(81)
    even = [(setting, with_unit_mass(setting.support, difference)) for setting, difference in cases]
    largest, constant = (max(mass_sq(s, bellman(s, d)) / mass_sq(s, d) for s, d in some) for some in (cases, even))
    return {
        f"largest ratio, {_TRIALS} processes": (largest, WITHIN_ONE),
        "ratio at equal differences in mass": (constant, exactly(1.0)),
    }


@states(
    "8b",
    "Lemma 3, shape part: T' contracts the squared ξ-weighted C_0 norm by γ, for any P and Q",
    FALSE,
    "Only where P(x) and Q(x) have equal mass at every state (then at any spacing, clipped or not). One state, r = 0, "
    "γ = 1/2, k = 5, P - Q = u: the inequality reads 0.1 <= 0.",
)
def _claim_8b() -> Figures:
    equal = unequal = 0.0
    for setting, difference in _random_differences(82):
        centred = difference - difference.mean(axis=1, keepdims=True)
        allowed = setting.process.discount * shape_sq(setting, centred)
        equal = max(equal, shape_sq(setting, bellman(setting, centred)) / allowed)
        heavy = centred + 3.0
        unequal = max(unequal, shape_sq(setting, bellman(setting, heavy)) / allowed)
    setting, even, ends = one_state(), np.full((1, 5), 0.2), np.array([[-1.0, 0.0, 0.0, 0.0, 1.0]])
    sharp = shape_sq(setting, bellman(setting, ends)) / (setting.process.discount * shape_sq(setting, ends))
    return {
        "left, P - Q = u": (shape_sq(setting, bellman(setting, even)), exactly(0.1)),
        "right, P - Q = u": (setting.process.discount * shape_sq(setting, even), exactly(0.0)),
        "left/right, P - Q = (-1, 0, 0, 0, 1)": (sharp, exactly(1.0)),
        "largest left/right, equal masses": (equal, WITHIN_ONE),
        "largest left/right, other masses": (unequal, at_least(1.5)),
    }


@states(
    "8c",
    "Adding α(x)e to P does not change the C_0 distance of T'P and T'Q (proof of Lemma 3)",
    FALSE,
    "It does, as M_r u is not u: one state, r = 0, γ = 1/2, k = 5, P = Q: adding u makes 0.1 of 0. True: |T'D| <= "
    "√γ|D| + c|mass D|, with c the largest |M_r u - u|, all but the mass in C_0.",
)
def _claim_8c() -> Figures:
    setting, distribution = one_state(), np.array([[0.1, 0.3, 0.2, 0.0, 0.4]])
    before = shape_sq(setting, bellman(setting, distribution) - bellman(setting, distribution))
    after = shape_sq(setting, bellman(setting, distribution + 0.2) - bellman(setting, distribution))
    sharp = math.sqrt(shape_sq(setting, bellman(setting, np.full((1, 5), 0.2)))) / drift(setting)
    largest = 0.0
    for case, difference in _random_differences(83):
        masses = math.sqrt(float(case.weights @ difference.sum(axis=1) ** 2))
        allowed = math.sqrt(case.process.discount * shape_sq(case, difference)) + drift(case) * masses
        largest = max(largest, math.sqrt(shape_sq(case, bellman(case, difference))) / allowed)
    return {
        "distance before": (before, exactly(0.0)),
        "distance after": (after, exactly(0.1)),
        "corrected inequality at D = u, left/right": (sharp, exactly(1.0)),
        "corrected inequality, largest left/right": (largest, WITHIN_ONE),
    }


@states(
    "9a",
    "Minimising the loss after a backup is the ξ-weighted projection of a backup whose mass is reset to one",
    HOLDS,
    "And the step does not depend on λ: the projection is Π_Φ on every atom alike.",
)
def _claim_9a() -> Figures:
    rng, gap = np.random.default_rng(91), 0.0
    for _ in range(4):
        setting = random_setting(rng)
        start = rng.normal(size=(2, setting.support.num_atoms))
        step = next(_iterates(setting, start)).masses
        for lam in (0.01, 1.0, 100.0):
            design = free_design(setting)
            matrix, constant = loss_step(setting, design, lam)
            gap = max(gap, float(np.abs(design @ (matrix @ start.ravel() + constant) - step).max()))
    return {"largest gap, λ = 0.01, 1, 100": (gap, at_most(1e-8))}


@states(
    "9b",
    "Each step brings two runs of the process closer: squared distance in C_λ shrinks by γ",
    FALSE,
    "Not the first step, where masses still differ: one state, r = 0, γ = 1/2, k = 5, λ = 1/4, P - Q = u gives 4γ. "
    "True from the second step on.",
)
def _claim_9b() -> Figures:
    lam, setting = 0.25, one_state()
    runs = [next(_iterates(setting, start)).masses for start in (np.full((1, 5), 0.2), np.zeros((1, 5)))]
    apart = runs[0] - runs[1]
    first = (shape_sq(setting, apart) + lam * mass_sq(setting, apart)) / (lam / 5)
    rng, later = np.random.default_rng(92), 0.0
    for _ in range(10):
        setting = random_setting(rng, reach=2.0)
        starts = rng.normal(size=(2, 2, setting.support.num_atoms))
        steps = zip(*(_iterates(setting, start, 12) for start in starts), strict=True)
        sizes = [shape_sq(setting, a.masses - b.masses) + lam * mass_sq(setting, a.masses - b.masses) for a, b in steps]
        later = max(later, *(b / a / setting.process.discount for a, b in pairwise(sizes)))
    return {
        "first step, ratio over γ": (first / one_state().process.discount, exactly(4.0)),
        "later steps, largest ratio over γ": (later, WITHIN_ONE),
    }


@states(
    "9c",
    "For λ > 0 the process converges, to the same fixed point from every start",
    HOLDS,
    "By another argument than the paper's: after one step every run has mass Π_Φ1, and at equal masses T' contracts.",
)
def _claim_9c() -> Figures:
    rng, gap, frozen = np.random.default_rng(93), 0.0, 0.0
    for case in range(6):
        setting = random_setting(rng, reach=1.0 + case % 2, discount=0.7)
        start = 1e3 * rng.normal(size=(2, setting.support.num_atoms))
        run = [iterate.masses for iterate in _iterates(setting, start, 130)]
        direct = evaluate(*setting, normalisation="after", method="direct")
        mass = span_projection(setting) @ np.ones(setting.process.num_states)
        gap = max(gap, float(np.abs(run[-1] - direct.masses).max()))
        frozen = max(frozen, float(np.abs(run[0].sum(axis=1) - mass).max()))
    return {
        "iteration from 1e3 less direct solve": (gap, ROUNDING),
        "mass after one step less Π_Φ1": (frozen, ROUNDING),
    }


@states(
    "9d",
    "For λ = 0 the process converges to a set whose members differ by α(x)e only",
    FALSE,
    "Mass leaks into shape. One state, r = 0, γ = 1/2, k = 5: if the mass is left alone, starts of mass 0 and 1 end in "
    "0 and in a unit mass at 0, √0.8 apart off e; if it is dropped (least norm), every run ends in 0.",
)
def _claim_9d() -> Figures:
    setting = one_state()
    limits = [_shape_only(setting, np.full((1, 5), mass / 5), keep_mass=True) for mass in (0.0, 1.0)]
    apart = limits[1] - limits[0]
    dropped = _shape_only(setting, np.full((1, 5), 0.2), keep_mass=False)
    return {
        "distance of two limits off e": (np.linalg.norm(apart - apart.mean()), exactly(math.sqrt(0.8))),
        "size of the limit, least norm": (np.linalg.norm(dropped), at_most(1e-12)),
    }


@states(
    "9e",
    "With the plain distance ℓ_λ in place of the loss, the process still converges to that set",
    FALSE,
    "With 1 outside the span everything decays to 0 (Φ = (1, -1)). On the 2-cycle, tabular, r = 0, masses 1 and 0 "
    "change places for ever: √0.8 off e in every step (k = 5).",
)
def _claim_9e() -> Figures:
    outside = Setting(*bound_counterexample())
    swap = MarkovRewardProcess([[0.0, 1.0], [1.0, 0.0]], [0.0, 0.0], 0.5)
    cycle = Setting(swap, np.eye(2), unit_support(5))
    decayed = _plain_run(outside, outside.features @ np.arange(9.0)[None, :], 120)[-1]
    run = _plain_run(cycle, np.outer([1.0, 0.0], np.full(5, 0.2)), 120)
    change = run[-1] - run[-2]
    off = change - change.mean(axis=1, keepdims=True)
    size = math.sqrt(float(cycle.weights @ (off**2).sum(axis=1)))
    return {
        "size after 120 steps, 1 outside the span": (np.abs(decayed).max(), at_most(1e-12)),
        "step 120 of the 2-cycle, off e": (size, exactly(math.sqrt(0.8))),
    }


def _random_differences(seed: int) -> list[tuple[Setting, Floats]]:
    """Processes on even and uneven atoms, clipped and not, each with a signed difference P - Q of any mass."""
    rng, cases = np.random.default_rng(seed), []
    for trial in range(_TRIALS):
        discount, reach = float(rng.uniform(0.1, 0.95)), float(rng.uniform(0.2, 4.0))
        setting = random_setting(rng, discount=discount, reach=reach, uneven=trial % 2 == 1)
        cases.append((setting, rng.normal(size=(4, setting.support.num_atoms))))
    return cases


def _iterates(setting: Setting, start: Floats, num_steps: int = 1) -> Iterator[Iterate]:
    """The paper's process with its constant corrected."""
    return projected_bellman_iterates(*setting, normalisation="after", initial_weights=start, num_steps=num_steps)


def _shape_only(setting: Setting, masses: Floats, *, keep_mass: bool) -> Floats:
    """Limit of the process without a penalty: the mass part of the fit is free, so it stays or is dropped."""
    pi = span_projection(setting)
    part = masses.mean(axis=1, keepdims=True) if keep_mass else 0.0
    for _ in range(200):
        moved = bellman(setting, masses)
        masses = pi @ (moved - moved.mean(axis=1, keepdims=True)) + part
    return masses


def _plain_run(setting: Setting, masses: Floats, num_steps: int) -> list[Floats]:
    """P -> Π_Φ T'P: the least squares fit in ℓ_λ, where nothing pulls the mass to one."""
    pi, run = span_projection(setting), [masses]
    for _ in range(num_steps):
        run.append(pi @ bellman(setting, run[-1]))
    return run


STATEMENTS = (_claim_8a, _claim_8b, _claim_8c, _claim_9a, _claim_9b, _claim_9c, _claim_9d, _claim_9e)
