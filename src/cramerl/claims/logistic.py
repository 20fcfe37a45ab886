"""Claims B7 to B10, beyond the paper: L51, whose outputs are the heights of the CDF through a logistic."""

from __future__ import annotations

import math

import numpy as np

from cramerl._arrays import Floats
from cramerl.claims.claim import ROUNDING, WITHIN_ONE, Figures, at_least, at_most, beyond, printed
from cramerl.claims.setting import Setting, random_setting
from cramerl.linear.evaluation import evaluate
from cramerl.linear.features import tabular
from cramerl.linear.processes import MarkovRewardProcess
from cramerl.losses import cdf_cross_entropy, masses_of_cdf_logits
from cramerl.measures import cdf, mean
from cramerl.supports import Support


@beyond(
    "B7",
    "The gradient of L51's loss in its outputs is F - F*, and its sum times the spacing is the error of the mean",
    "holds",
    "No entry exceeds one in absolute value, whatever the outputs. The bias of the last layer follows the TD error "
    "μ* - μ, as DQN's does.",
)
def _claim_b7() -> Figures:
    rng, support = np.random.default_rng(207), Support.uniform(-2.0, 3.0, 11)
    logits, targets = rng.normal(scale=3.0, size=(40, 10)), rng.dirichlet(np.full(11, 0.3), size=40)
    gradient, far = _gradient(targets, logits), _gradient(targets, 100 * logits)
    masses = masses_of_cdf_logits(logits)
    gap = gradient - (cdf(support, masses) - cdf(support, targets))[:, :-1]
    td_error = mean(support, targets) - mean(support, masses)
    return {
        "gradient, by differences, less F - F*": (np.abs(gap).max(), at_most(1e-8)),
        "largest entry, outputs up to 1000": (np.abs(far).max(), at_most(1 + 1e-6)),
        "sum times spacing, less μ* - μ": (np.abs(0.5 * gradient.sum(axis=1) - td_error).max(), at_most(1e-8)),
    }


@beyond(
    "B8",
    "With outputs for each state of their own, L51 has the fixed point of the Cramér loss",
    "holds",
    "Over random targets both losses are least at the mean height. Clipped or not.",
)
def _claim_b8() -> Figures:
    rng, gap, slope = np.random.default_rng(208), 0.0, 0.0
    for case in range(6):
        setting = random_setting(rng, discount=0.5 + 0.05 * case, reach=1.0 + case % 2)
        logits = _minimised(setting, rng.normal(scale=3.0, size=(4, 6)))
        masses = masses_of_cdf_logits(logits)
        direct = evaluate(setting.process, tabular(4), setting.support).masses
        gap = max(gap, float(np.abs(masses - direct).max()))
        slope = max(slope, float(np.abs(_gradient(setting.bellman(masses), logits)).max()))
    return {
        "exact steps less direct solve, 6 processes": (gap, ROUNDING),
        "gradient at the fixed point": (slope, at_most(1e-8)),
    }


@beyond(
    "B9",
    "With any linear features and even spacing, a prediction that is exactly right is a stable fixed point of L51",
    "holds",
    "The expected update goes back to it from nearby. With D = F(1 - F), which is concave, D is at least its backup; "
    "so the derivative of the backup has norm √γ at most in the weights ξD.",
)
def _claim_b9() -> Figures:
    rng, norms, growth = np.random.default_rng(209), [], []
    for case in range(40):
        discount = float(rng.uniform(0.1, 0.98))
        setting = random_setting(rng, num_atoms=(3, 7)[case % 2], discount=discount, reach=float(rng.uniform(0.5, 4.0)))
        heights, moved = (
            _heights(evaluate(setting.process, tabular(4), setting.support).masses),
            _height_tensor(setting),
        )
        norms.append(_derivative_norm(setting, heights, moved) / math.sqrt(discount))
        if (
            heights.shape[1] == 2 and np.min(heights * (1 - heights)) > 1e-3
        ):  # else no finite logits of any use are right
            growth.append(_growth_in_weights(setting, heights, moved))
    return {
        "largest norm of the derivative over √γ, 40 processes": (max(norms), WITHIN_ONE),
        "processes that two features predict exactly": (len(growth), at_least(5)),
        "two features: largest real part of an eigenvalue": (max(growth), at_most(0.0)),
    }


@beyond(
    "B10",
    "With linear features L51 need not satisfy Theorem 1's bound",
    "holds",
    "Two states that follow each other, rewards 0, γ = 1/2, atoms (0, 1), one feature (5, 1): a weight of 20 predicts "
    "the return, 0, nearly, but expected updates end where the means are 0.14 and 0.41. Masses that are linear in the "
    "feature satisfy it.",
)
def _claim_b10() -> Figures:
    swap = MarkovRewardProcess([[0.0, 1.0], [1.0, 0.0]], [0.0, 0.0], 0.5)
    setting = Setting(swap, np.array([[5.0], [1.0]]), Support([0.0, 1.0]))
    truth = np.array([[1.0, 0.0], [1.0, 0.0]])
    ends = _after_updates(setting, np.array([-3.0, 0.0, 3.0]), step_size=0.5, num_steps=300)
    found, nearly = (masses_of_cdf_logits(weight * setting.features) for weight in (ends[0], 20.0))
    error, least = setting.shape_sq(found - truth), setting.shape_sq(nearly - truth)
    linear, best = evaluate(*setting).masses, setting.span_projection() @ truth
    bound = setting.shape_sq(best - truth) / (1 - 0.5)
    return {
        "gap of the weights after 3 starts": (np.ptp(ends), ROUNDING),
        "mean of the first state": (mean(setting.support, found)[0], printed("0.1362")),
        "mean of the second state": (mean(setting.support, found)[1], printed("0.4087")),
        "left": (error, printed("0.0928")),
        "right, with a weight of 20": (least / (1 - 0.5), at_most(1e-15)),
        "linear masses: left/right": (setting.shape_sq(linear - truth) / bound, WITHIN_ONE),
    }


def _heights(masses: Floats) -> Floats:
    """(..., K - 1) heights of the CDF before the last atom."""
    return np.cumsum(masses, axis=-1)[..., :-1]


def _gradient(targets: Floats, logits: Floats, step: float = 1e-4) -> Floats:
    """Gradient of the loss in the logits, by differences of fourth order."""
    gradient = np.empty_like(logits)
    for i, direction in enumerate(np.eye(logits.shape[-1])):
        near, far = (
            cdf_cross_entropy(targets, logits + size * direction)
            - cdf_cross_entropy(targets, logits - size * direction)
            for size in (step, 2 * step)
        )
        gradient[..., i] = (8 * near - far) / (12 * step)
    return gradient


def _minimised(setting: Setting, logits: Floats, num_steps: int = 150) -> Floats:
    """Logits (S, K - 1) after exact steps: each minimises the loss to the backup of the last, which has heights F*."""
    matrix = setting.backup_tensor()
    for _ in range(num_steps):
        targets = np.einsum("xkyl,yl->xk", matrix, masses_of_cdf_logits(logits))
        # Where F* is 0 or 1 only infinite logits would do: they end at 28.
        heights = np.clip(_heights(targets), 1e-12, 1 - 1e-12)
        logits = np.log(heights) - np.log1p(-heights)
    return logits


def _height_tensor(setting: Setting) -> Floats:
    """(S, K - 1, S, K - 1): the backup of all states, as a matrix on heights (it adds a constant to it)."""
    tensor = setting.backup_tensor()
    # A height is the masses up to its atom; raising one moves mass there from the next atom.
    columns = tensor[..., :-1] - tensor[..., 1:]
    return np.cumsum(columns, axis=1)[:, :-1]


def _derivative_norm(setting: Setting, heights: Floats, moved: Floats) -> float:
    """Largest of v'Ξ W D v / v'ΞD v over v, where W is the backup on heights and D = F(1 - F)."""
    slopes = (heights * (1 - heights)).ravel()
    some = np.flatnonzero(slopes > 1e-9)  # a height of 0 or 1 does not move
    matrix, weights = moved.reshape(slopes.size, -1), np.repeat(setting.weights, heights.shape[1])
    scale = np.sqrt(weights[some] * slopes[some])
    form = weights[some, None] * matrix[np.ix_(some, some)] * slopes[some] / np.outer(scale, scale)
    return float(np.linalg.eigvalsh((form + form.T) / 2).max(initial=0.0))


def _growth_in_weights(setting: Setting, heights: Floats, moved: Floats) -> float:
    """Largest real part among the eigenvalues of L51's expected update, in the weights of its features.

    The features are the logits of the true heights: they predict the return exactly.
    """
    size = heights.size
    logits = np.log(heights / (1 - heights))
    features = np.linalg.qr(logits)[0]
    design = np.einsum("xd,kl->xkdl", features, np.eye(heights.shape[1])).reshape(size, -1)
    change = (moved.reshape(size, size) - np.eye(size)) * (heights * (1 - heights)).ravel()
    weighted = design.T * np.repeat(setting.weights, heights.shape[1])
    return float(np.linalg.eigvals(weighted @ change @ design).real.max())


def _after_updates(setting: Setting, weights: Floats, step_size: float, num_steps: int) -> Floats:
    """Weights (W,) of separate runs after expected updates of L51, with one feature and two atoms."""
    matrix, pull = setting.backup_tensor(), setting.weights * setting.features[:, 0]
    for _ in range(num_steps):
        masses = masses_of_cdf_logits(weights[:, None, None] * setting.features)
        targets = np.einsum("xkyl,wyl->wxk", matrix, masses)
        weights = weights + step_size * (_heights(targets) - _heights(masses))[..., 0] @ pull
    return weights


STATEMENTS = (_claim_b7, _claim_b8, _claim_b9, _claim_b10)
