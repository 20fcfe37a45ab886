"""Claims 8a to 9e: what the Bellman operator contracts (Lemma 3), and where the process converges (Theorem 1)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from cramerl._arrays import Floats
from cramerl.claims.claim import ROUNDING, WITHIN_ONE, Figures, at_least, at_most, exactly, states
from cramerl.claims.setting import Setting, one_state, random_setting, unit_support
from cramerl.linear.evaluation import Iterate, evaluate, projected_bellman_iterates
from cramerl.linear.examples import bound_counterexample
from cramerl.linear.processes import MarkovRewardProcess
from cramerl.measures import with_unit_mass

_TRIALS = 60


@states(
    "8a",
    "Lemma 3, mass part: T' does not expand the ξ-weighted norm along e",
    "holds",
    "Nothing to correct; equality where the difference in mass is the same at every state.",
)
def _claim_8a() -> Figures:
    cases = _random_differences(81)
    even = [(setting, with_unit_mass(setting.support, difference)) for setting, difference in cases]
    largest, constant = (max(s.mass_sq(s.bellman(d)) / s.mass_sq(d) for s, d in some) for some in (cases, even))
    return {
        f"largest ratio, {_TRIALS} processes": (largest, WITHIN_ONE),
        "ratio at equal differences in mass": (constant, exactly(1.0)),
    }


@states(
    "8b",
    "Lemma 3, shape part: T' contracts the squared ξ-weighted C_0 norm by γ, for any P and Q",
    "false",
    "Only where P(x) and Q(x) have equal mass at every state (then at any spacing, clipped or not). One state, r = 0, "
    "γ = 1/2, k = 5, P - Q = u: the inequality reads 0.1 <= 0.",
    severity="theorem",
)
def _claim_8b() -> Figures:
    equal = unequal = 0.0
    for setting, difference in _random_differences(82):
        centred = difference - difference.mean(axis=1, keepdims=True)
        allowed = setting.process.discount * setting.shape_sq(centred)
        equal = max(equal, setting.shape_sq(setting.bellman(centred)) / allowed)
        heavy = centred + 3.0
        unequal = max(unequal, setting.shape_sq(setting.bellman(heavy)) / allowed)
    setting, even, ends = one_state(), np.full((1, 5), 0.2), np.array([[-1.0, 0.0, 0.0, 0.0, 1.0]])
    sharp = setting.shape_sq(setting.bellman(ends)) / (setting.process.discount * setting.shape_sq(ends))
    return {
        "left, P - Q = u": (setting.shape_sq(setting.bellman(even)), exactly(0.1)),
        "right, P - Q = u": (setting.process.discount * setting.shape_sq(even), exactly(0.0)),
        "left/right, P - Q = (-1, 0, 0, 0, 1)": (sharp, exactly(1.0)),
        "largest left/right, equal masses": (equal, WITHIN_ONE),
        "largest left/right, other masses": (unequal, at_least(1.5)),
    }


@states(
    "8c",
    "Adding α(x)e to P does not change the C_0 distance of T'P and T'Q (proof of Lemma 3)",
    "false",
    "It does, as M_r u is not u: one state, r = 0, γ = 1/2, k = 5, P = Q: adding u makes 0.1 of 0. True: |T'D| <= "
    "√γ|D| + c|mass D|, with c the largest |M_r u - u|, all but the mass in C_0.",
    severity="theorem",
)
def _claim_8c() -> Figures:
    setting, distribution = one_state(), np.array([[0.1, 0.3, 0.2, 0.0, 0.4]])
    before = setting.shape_sq(setting.bellman(distribution) - setting.bellman(distribution))
    after = setting.shape_sq(setting.bellman(distribution + 0.2) - setting.bellman(distribution))
    sharp = math.sqrt(setting.shape_sq(setting.bellman(np.full((1, 5), 0.2)))) / setting.drift()
    largest = 0.0
    for case, difference in _random_differences(83):
        masses = math.sqrt(float(case.weights @ difference.sum(axis=1) ** 2))
        allowed = math.sqrt(case.process.discount * case.shape_sq(difference)) + case.drift() * masses
        largest = max(largest, math.sqrt(case.shape_sq(case.bellman(difference))) / allowed)
    return {
        "distance before": (before, exactly(0.0)),
        "distance after": (after, exactly(0.1)),
        "corrected inequality at D = u, left/right": (sharp, exactly(1.0)),
        "corrected inequality, largest left/right": (largest, WITHIN_ONE),
    }


@states(
    "9a",
    "Minimising the loss after a backup is the ξ-weighted projection of a backup whose mass is reset to one",
    "holds",
    "And the step does not depend on λ: the projection is Π_Φ on every atom alike.",
)
def _claim_9a() -> Figures:
    rng, gap = np.random.default_rng(91), 0.0
    for _ in range(4):
        setting = random_setting(rng)
        start = rng.normal(size=(2, setting.support.num_atoms))
        step = next(_iterates(setting, start)).masses
        for lam in (0.01, 1.0, 100.0):
            design = setting.free_design()
            matrix, constant = setting.loss_step(design, lam)
            gap = max(gap, float(np.abs(design @ (matrix @ start.ravel() + constant) - step).max()))
    return {"largest gap, λ = 0.01, 1, 100": (gap, at_most(1e-8))}


@states(
    "9b",
    "Each step brings two runs of the process closer: squared distance in C_λ shrinks by γ",
    "false",
    "Not the first step, where masses still differ: one state, r = 0, γ = 1/2, k = 5, λ = 1/4, P - Q = u gives 4γ. "
    "True from the second step on.",
    severity="theorem",
)
def _claim_9b() -> Figures:
    lam, setting = 0.25, one_state()
    runs = [next(_iterates(setting, start)).masses for start in (np.full((1, 5), 0.2), np.zeros((1, 5)))]
    apart = runs[0] - runs[1]
    first = (setting.shape_sq(apart) + lam * setting.mass_sq(apart)) / (lam / 5)
    rng, later = np.random.default_rng(92), 0.0
    for _ in range(10):
        setting = random_setting(rng, reach=2.0)
        starts = rng.normal(size=(2, 2, setting.support.num_atoms))
        steps = zip(*(_iterates(setting, start, 12) for start in starts), strict=True)
        sizes = [setting.shape_sq(a.masses - b.masses) + lam * setting.mass_sq(a.masses - b.masses) for a, b in steps]
        later = max(later, *(b / a / setting.process.discount for a, b in pairwise(sizes)))
    return {
        "first step, ratio over γ": (first / one_state().process.discount, exactly(4.0)),
        "later steps, largest ratio over γ": (later, WITHIN_ONE),
    }


@states(
    "9c",
    "For λ > 0 the process converges, to the same fixed point from every start",
    "holds",
    "By another argument than the paper's: after one step every run has mass Π_Φ1, and at equal masses T' contracts.",
)
def _claim_9c() -> Figures:
    rng, gap, frozen = np.random.default_rng(93), 0.0, 0.0
    for case in range(6):
        setting = random_setting(rng, reach=1.0 + case % 2, discount=0.7)
        start = 1e3 * rng.normal(size=(2, setting.support.num_atoms))
        run = [iterate.masses for iterate in _iterates(setting, start, 130)]
        direct = evaluate(*setting, normalisation="after", method="direct")
        mass = setting.span_projection() @ np.ones(setting.process.num_states)
        gap = max(gap, float(np.abs(run[-1] - direct.masses).max()))
        frozen = max(frozen, float(np.abs(run[0].sum(axis=1) - mass).max()))
    return {
        "iteration from 1e3 less direct solve": (gap, ROUNDING),
        "mass after one step less Π_Φ1": (frozen, ROUNDING),
    }


@states(
    "9d",
    "For λ = 0 the process converges to a set whose members differ by α(x)e only",
    "false",
    "Mass leaks into shape. One state, r = 0, γ = 1/2, k = 5: if the mass is left alone, starts of mass 0 and 1 end in "
    "0 and in a unit mass at 0, √0.8 apart off e; if it is dropped (least norm), every run ends in 0.",
    severity="theorem",
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
    "false",
    "With 1 outside the span everything decays to 0 (Φ = (1, -1)). On the 2-cycle, tabular, r = 0, masses 1 and 0 "
    "change places for ever: √0.8 off e in every step (k = 5).",
    severity="theorem",
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
    pi = setting.span_projection()
    part = masses.mean(axis=1, keepdims=True) if keep_mass else 0.0
    for _ in range(200):
        moved = setting.bellman(masses)
        masses = pi @ (moved - moved.mean(axis=1, keepdims=True)) + part
    return masses


def _plain_run(setting: Setting, masses: Floats, num_steps: int) -> list[Floats]:
    """P -> Π_Φ T'P: the least squares fit in ℓ_λ, where nothing pulls the mass to one."""
    pi, run = setting.span_projection(), [masses]
    for _ in range(num_steps):
        run.append(pi @ setting.bellman(run[-1]))
    return run


STATEMENTS = (_claim_8a, _claim_8b, _claim_8c, _claim_9a, _claim_9b, _claim_9c, _claim_9d, _claim_9e)
