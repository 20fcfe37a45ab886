"""Claims 11, 12 and B1: updates from samples, whether distributions cost accuracy of the mean, direct solutions."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from cramerl._arrays import Floats
from cramerl.claims.claim import Figures, at_least, at_most, beyond, printed, states
from cramerl.claims.setting import Setting, random_setting, unit_support
from cramerl.cramer import cramer_gram
from cramerl.linear.evaluation import evaluate
from cramerl.linear.features import tabular
from cramerl.linear.problem import Normalisation
from cramerl.linear.processes import MarkovRewardProcess
from cramerl.linear.td import LinearTD, StepSize
from cramerl.measures import with_unit_mass
from cramerl.projections import backup_matrix
from cramerl.supports import Support

_MEAN_GAP = at_most(1e-10)


@states(
    "11",
    "Corollary: the updates Θ + α∇ℓ² from sampled transitions converge",
    "false",
    "The sign makes them diverge, and ℓ leaves the mass undetermined (an eigenvalue of zero). "
    "Θ + αφ(x)(y - Q(x))'C_λ, or the same without C_λ, converges, where y backs up Q(x') with its mass made one.",
    severity="theorem",
)
def _claim_11() -> Figures:
    process = MarkovRewardProcess([[0.6, 0.4], [0.4, 0.6]], [-1.0, 1.0], 0.5)
    setting = Setting(process, np.array([[1.0, 0.0], [1.0, 1.0]]), unit_support(5))
    metric = cramer_gram(setting.support, 1.0)
    corrected = _least_eigenvalue(process, functools.partial(with_unit_mass, unit_support(5)))
    return {
        "as printed: samples to a weight of 1e12": (_samples_to_diverge(setting, metric), at_most(2000)),
        "ℓ: least eigenvalue of the mean update": (_least_eigenvalue(process, lambda m: m), at_most(1e-12)),
        "corrected: least eigenvalue": (corrected, at_least(0.1)),
        "with C_λ: average less direct solution": (_learned_gap(setting, preconditioned=False), at_most(0.01)),
        "without: average less direct solution": (_learned_gap(setting, preconditioned=True), at_most(0.01)),
    }


@states(
    "12",
    "Learning distributions may give worse means than learning the value function alone",
    "false",
    "Not supported: with nothing clipped and 1 in the span (or the mass made one before the backup, centred atoms, any "
    "Φ) the means are LSTD's. Worse only through clipping (mean 0.852 for a value of 1, k = 5 on [-2, 2], γ = 0.9), or "
    "with 1 outside the span and the mass reset after the backup.",
    severity="theorem",
)
def _claim_12() -> Figures:
    rng = np.random.default_rng(13)
    spanned, outside = ([random_setting(rng, bias=bias) for _ in range(8)] for bias in (True, False))
    # Two states that follow each other evenly: values of 1 and -1, returns up to ten.
    even = MarkovRewardProcess(np.full((2, 2), 0.5), [1.0, -1.0], 0.9)
    clipped = evaluate(even, tabular(2), Support.uniform(-2, 2, 5))
    ratios = [_error_over_lstd(random_setting(rng)) for _ in range(60)]
    return {
        "1 in the span: after less LSTD": (max(_lstd_gap(s, "after") for s in spanned), _MEAN_GAP),
        "1 in the span: before less LSTD": (max(_lstd_gap(s, "before") for s in spanned), _MEAN_GAP),
        "any Φ: before less LSTD": (max(_lstd_gap(s, "before") for s in outside), _MEAN_GAP),
        "clipped: mean for a value of 1": (clipped.values[0], printed("0.852")),
        "after, 1 outside: share worse than LSTD": (np.mean(np.array(ratios) > 1), at_least(0.5)),
        "after, 1 outside: median error over LSTD's": (np.median(ratios), at_least(1.0)),
    }


@beyond(
    "B1",
    "The fixed point of the process solves a linear system",
    "holds",
    "A direct solve equals the iteration, and a Krylov method needs far fewer products.",
)
def _claim_b1() -> Figures:
    rng, gap, products, saved = np.random.default_rng(12), 0.0, 0, np.inf
    for discount in (0.9, 0.99):
        setting = random_setting(rng, num_states=20, num_features=4, num_atoms=21, discount=discount, bias=True)
        found = {method: evaluate(*setting, method=method) for method in ("direct", "krylov", "iteration")}
        for other in ("krylov", "iteration"):
            gap = max(gap, float(np.abs(found["direct"].masses - found[other].masses).max()))
        products = max(products, found["krylov"].iterations)
        saved = min(saved, found["iteration"].iterations / found["krylov"].iterations)
    return {
        "largest gap of the three": (gap, at_most(1e-10)),
        "Krylov: most products": (products, at_most(300)),
        "iteration: products over Krylov's, at least": (saved, at_least(2.0)),
    }


def _samples_to_diverge(setting: Setting, metric: Floats, step: float = 0.05) -> int:
    """Samples until a weight passes 1e12 under Θ + α∇ℓ², whose gradient is -2 φ(x)(y - Q(x))'C_λ."""
    path, branches = setting.process.sample(4000, seed=11), setting.process.branches
    moves = backup_matrix(setting.support, branches.rewards, branches.discounts)  # M_r of every state
    weights = np.full((2, setting.support.num_atoms), 1.0 / setting.support.num_atoms)
    for count, (x, y) in enumerate(zip(path.states, path.next_states, strict=True)):
        here, following = setting.features[x], setting.features[y] @ weights
        weights = weights - 2 * step * np.outer(here, (moves[x] @ following - here @ weights) @ metric)
        if np.abs(weights).max() > 1e12:
            return count + 1
    return len(path.states) + 1


def _learned_gap(setting: Setting, *, preconditioned: bool) -> float:
    """Largest gap of what the corrected updates have learned, on average, to the direct solution."""
    td = LinearTD(
        setting.support,
        setting.features.shape[1],
        setting.process.discount,
        preconditioned=preconditioned,
        step_size=StepSize(0.5 if preconditioned else 0.1, exponent=0.6, decay_updates=50),
    )
    td.run_transitions(setting.features, setting.process.sample(100_000, seed=110), batch_size=32)
    return float(np.abs(td.masses(setting.features) - evaluate(*setting).masses).max())


def _least_eigenvalue(process: MarkovRewardProcess, normalise: Callable[[Floats], Floats]) -> float:
    """Least modulus among the eigenvalues of I - T', tabular, where T' backs up normalised masses."""
    setting = Setting(process, tabular(2), unit_support(5))
    start = setting.bellman(normalise(np.zeros((2, 5))))
    columns = [setting.bellman(normalise(unit.reshape(2, 5))) - start for unit in np.eye(10)]
    matrix = np.eye(10) - np.stack([column.ravel() for column in columns], axis=1)
    return float(np.abs(np.linalg.eigvals(matrix)).min())


def _lstd(setting: Setting) -> Floats:
    """(S,) values of least squares temporal differences with the same features."""
    process, features, _ = setting
    weighted = features.T * setting.weights
    system = weighted @ (features - process.discount * (process.transition @ features))
    return features @ np.linalg.solve(system, weighted @ process.expected_rewards)


def _lstd_gap(setting: Setting, normalisation: Normalisation) -> float:
    return float(np.abs(evaluate(*setting, normalisation=normalisation).values - _lstd(setting)).max())


def _error_over_lstd(setting: Setting) -> float:
    """Error of the means of *after* over that of LSTD, in the norm of the states."""
    truth, xi = setting.process.true_values(), setting.weights
    means = evaluate(*setting, normalisation="after").values
    return float(np.sqrt(xi @ (means - truth) ** 2 / (xi @ (_lstd(setting) - truth) ** 2)))


STATEMENTS = (_claim_11, _claim_12, _claim_b1)
