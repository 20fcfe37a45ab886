"""Claims B2 to B6, beyond the paper: targets made from proper distributions, of which nothing of its theory is lost."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from cramerl._arrays import Floats
from cramerl.claims.claim import ROUNDING, WITHIN_ONE, Figures, at_least, beyond, exactly
from cramerl.claims.setting import Setting, random_setting, unit_support
from cramerl.cramer import cramer_distance_sq
from cramerl.measures import (
    masses_between,
    mean,
    nearest_distribution,
    rearranged_distribution,
    with_unit_mass,
)
from cramerl.projections import backup, project
from cramerl.supports import Support

_PROCESSES = 80
_STARTS = 3
_MOST_STEPS = 3000

MakeProper = Callable[[Support, Floats], Floats]


@beyond(
    "B2",
    "On even spacing, sorting the heights of the CDF and cutting them to [0, 1] never increases a Cramér distance",
    "holds",
    "Sorting two vectors brings them no further apart, and cutting neither. It leaves every distribution alone. Even "
    "spacing is needed: on atoms (0, 1, 3) sorting takes (1, -1, 1) and (0, 0, 1) from 1 apart, squared, to 2.",
)
def _claim_b2() -> Figures:
    rng = np.random.default_rng(202)
    largest = max(_largest_ratio(rng, unit_support(k), rearranged_distribution) for k in (2, 3, 11, 51))
    uneven = Support([0.0, 1.0, 3.0])
    pair = np.array([[1.0, -1.0, 1.0], [0.0, 0.0, 1.0]])
    found = _largest_ratio(rng, Support([0.0, 1.0, 3.0, 4.0]), _sorted_and_cut)
    return {
        "largest ratio of distances, 4 supports": (largest, WITHIN_ONE),
        "change of a distribution": (
            _change_of_distributions(rng, unit_support(11), rearranged_distribution),
            ROUNDING,
        ),
        "atoms (0, 1, 3): squared distance before": (cramer_distance_sq(uneven, *pair), exactly(1.0)),
        "atoms (0, 1, 3): squared distance after": (
            cramer_distance_sq(uneven, *_sorted_and_cut(uneven, pair)),
            exactly(2.0),
        ),
        "atoms (0, 1, 3, 4), by search: ratio of distances": (found, at_least(1.1)),
    }


@beyond(
    "B3",
    "The projection onto distributions never increases a Cramér distance, on any spacing",
    "holds",
    "It is the orthogonal projection onto a convex set. It leaves every distribution alone.",
)
def _claim_b3() -> Figures:
    rng, largest, change = np.random.default_rng(203), 0.0, 0.0
    for num_atoms in (2, 3, 5, 11, 21):
        support = Support(np.cumsum(rng.exponential(size=num_atoms) + 1e-3))
        largest = max(largest, _largest_ratio(rng, support, nearest_distribution))
        change = max(change, _change_of_distributions(rng, support, nearest_distribution))
    return {
        "largest ratio of distances, 5 uneven supports": (largest, WITHIN_ONE),
        "change of a distribution": (change, ROUNDING),
    }


@beyond(
    "B4",
    "A backup of masses that were first rearranged or projected onto distributions contracts by √γ",
    "holds",
    "As a backup of masses of total one does. No smaller factor will do: unit masses at the two ends come closer by "
    "exactly √γ.",
)
def _claim_b4() -> Figures:
    rng, ratios = np.random.default_rng(204), {"rearranged": 0.0, "projected": 0.0}
    for trial in range(60):
        discount, reach = float(rng.uniform(0.1, 0.95)), float(rng.uniform(0.2, 4.0))
        setting = random_setting(rng, discount=discount, reach=reach, uneven=trial % 2 == 1)
        pair = rng.dirichlet(np.ones(7), size=(2, 4)) + 10.0 ** rng.uniform(-3, 1) * rng.normal(size=(2, 4, 7))
        if setting.support.is_uniform:
            ratios["rearranged"] = max(ratios["rearranged"], _contraction(setting, pair, rearranged_distribution))
        ratios["projected"] = max(ratios["projected"], _contraction(setting, pair, nearest_distribution))
    five, ends = unit_support(5), np.eye(5)[[0, -1]]
    moved = backup(five, 0.0, 0.5, rearranged_distribution(five, ends))
    sharp = cramer_distance_sq(five, *moved) / cramer_distance_sq(five, *ends)
    return {
        "rearranged: largest ratio over √γ, 30 processes": (ratios["rearranged"], WITHIN_ONE),
        "projected: largest ratio over √γ, 60 processes": (ratios["projected"], WITHIN_ONE),
        "unit masses at the ends of 5 atoms, γ = 1/2": (math.sqrt(sharp / 0.5), exactly(1.0)),
    }


@beyond(
    "B5",
    "With linear features and rearranged targets the process has one fixed point, and Theorem 1's bound holds for it",
    "holds",
    "For any features and nothing clipped: Π_Φ T' after rearranging contracts by √γ, and rearranging leaves the "
    "distribution of the return alone.",
)
def _claim_b5() -> Figures:
    rng = np.random.default_rng(205)
    settings = [
        random_setting(rng, discount=float(rng.uniform(0.1, 0.95)), reach=0.9, bias=trial % 2 == 0)
        for trial in range(_PROCESSES)
    ]
    found = _rearranged_fixed_points(settings, 3.0 * rng.normal(size=(_STARTS, _PROCESSES, 4, 7)))
    apart = np.ptp(found, axis=0).max()
    ratios = np.array([_over_bound(*case) for case in zip(settings, found[0], strict=True)])
    signed = sum(np.min(masses) < -1e-3 for masses in found[0])
    return {
        f"gap of {_STARTS} starts, {_PROCESSES} processes": (apart, ROUNDING),
        "violations of the bound": (np.sum(ratios > 1 + 1e-9), exactly(0.0)),
        "largest left/right": (ratios.max(), WITHIN_ONE),
        "fixed points with negative mass": (signed, at_least(20)),
    }


@beyond(
    "B6",
    "The mean of a target made from a proper distribution lies in the support, whatever the outputs of the network are",
    "holds",
    "It is the mean of a distribution on the support. That of a signed target need not: atoms (-1, 0, 1), masses "
    "(-1, 3, -1) of mean 0, r = 1, γ = 0.9 have a target of mean 1.9.",
)
def _claim_b6() -> Figures:
    rng, support, outside = np.random.default_rng(206), unit_support(11), {}
    outputs = 10.0 ** rng.uniform(-2, 6, size=(200, 1)) * rng.normal(size=(200, 11))
    rewards, discounts = rng.normal(scale=5.0, size=200), rng.uniform(size=200)
    for name, make in (("rearranged", rearranged_distribution), ("projected", nearest_distribution)):
        means = mean(support, backup(support, rewards, discounts, make(support, outputs)))
        outside[name] = max(np.max(means) - support.v_max, support.v_min - np.min(means))
    three, signed = unit_support(3), np.array([-1.0, 3.0, -1.0])
    targets = [backup(three, 1.0, 0.9, masses) for masses in (signed, rearranged_distribution(three, signed))]
    return {
        "rearranged: furthest outside the support": (outside["rearranged"], ROUNDING),
        "projected: furthest outside the support": (outside["projected"], ROUNDING),
        "(-1, 3, -1): mean": (mean(three, signed), exactly(0.0)),
        "(-1, 3, -1): mean of its target": (mean(three, targets[0]), exactly(1.9)),
        "(-1, 3, -1), rearranged: mean of its target": (mean(three, targets[1]), exactly(1.0)),
    }


def _sorted_and_cut(support: Support, masses: Floats) -> Floats:
    """What `rearranged_distribution` does, on a spacing for which it refuses to."""
    heights = np.cumsum(with_unit_mass(support, masses), axis=-1)[..., :-1]
    return masses_between(np, np.clip(np.sort(heights, axis=-1), 0.0, 1.0))


def _largest_ratio(rng: np.random.Generator, support: Support, make_proper: MakeProper) -> float:
    """Largest distance after over distance before, of 100 pairs of total one: far apart, near, and nearly proper."""
    shape = (100, support.num_atoms)
    first = rng.dirichlet(np.ones(support.num_atoms), size=100) + rng.exponential(size=(100, 1)) * rng.normal(
        size=shape
    )
    second = first + 10.0 ** rng.uniform(-3, 1, size=(100, 1)) * rng.normal(size=shape)
    pair = with_unit_mass(support, np.array([first, second]))
    before, after = (cramer_distance_sq(support, *masses) for masses in (pair, make_proper(support, pair)))
    return float(np.sqrt(np.max(after / before)))


def _change_of_distributions(rng: np.random.Generator, support: Support, make_proper: MakeProper) -> float:
    """Largest change of a mass among 50 distributions, half of them with atoms that hold none."""
    probs = rng.dirichlet(np.ones(support.num_atoms), size=50)
    sparse = np.eye(support.num_atoms)[rng.integers(support.num_atoms, size=50)]
    some = np.concatenate([probs, sparse])
    return float(np.abs(make_proper(support, some) - some).max())


def _contraction(setting: Setting, pair: Floats, make_proper: MakeProper) -> float:
    """Distance of two backups over √γ times that of the measures, which are brought to total one."""
    support = setting.support
    backups = [setting.bellman(make_proper(support, masses)) for masses in pair]
    apart = np.subtract(*with_unit_mass(support, pair))
    allowed = setting.process.discount * setting.shape_sq(apart)
    return math.sqrt(setting.shape_sq(np.subtract(*backups)) / allowed)


def _rearranged_fixed_points(settings: list[Setting], starts: Floats) -> Floats:
    """Limits of P -> Π_Φ T' R(P), (starts, settings, S, K), from starts of that shape, all on the same support."""
    support, (_, count, num_states, num_atoms) = settings[0].support, starts.shape
    size = num_states * num_atoms
    matrices = np.stack([np.einsum("xy,ykzl->xkzl", s.span_projection(), s.backup_tensor()) for s in settings])
    matrices, masses = matrices.reshape(count, size, size), starts
    for _ in range(_MOST_STEPS):
        proper = rearranged_distribution(support, masses).reshape(-1, count, size)
        moved = np.einsum("nij,snj->sni", matrices, proper, optimize=True).reshape(starts.shape)
        if np.abs(moved - masses).max() < 1e-13:
            return moved
        masses = moved
    return masses


def _over_bound(setting: Setting, masses: Floats) -> float:
    """Squared error over Theorem 1's bound; the distribution of the return is taken on three times as many atoms."""
    support = setting.support
    fine = setting._replace(support=Support.uniform(support.v_min, support.v_max, 3 * (support.num_atoms - 1) + 1))
    distribution = fine.projected_returns()
    best = setting.span_projection() @ project(support, fine.support.atoms, distribution)
    left, right = (setting.distribution_error_sq(rows, fine.support, distribution) for rows in (masses, best))
    return left * (1 - setting.process.discount) / right


STATEMENTS = (_claim_b2, _claim_b3, _claim_b4, _claim_b5, _claim_b6)
