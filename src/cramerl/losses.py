"""Per-example losses: array in, one number per example out, the mean left to the caller.

Losses treat the target as given: stop its gradient (``jax.lax.stop_gradient``,
``tensor.detach()``) if it was computed from the same network.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from cramerl._arrays import Array, along_last, as_floats, log_normal_cdf, placement
from cramerl._checks import (
    broadcast,
    on_support,
    require_choice,
    require_finite,
    require_in_unit_interval,
    require_last_axis,
    require_penalty,
    require_representable,
    require_same_last_axis,
    require_scale,
)
from cramerl.cramer import shape_energy
from cramerl.measures import masses_between
from cramerl.supports import Support, require_support


def cramer_loss(
    support: Support,
    target: Array,
    prediction: Array,
    mass_penalty: Any,
    mass_penalty_scale: Literal["orthonormal", "total"] = "orthonormal",
    mean_weight: Any = 0.0,
) -> Array:
    r"""Cramér loss of S51: distance in shape to the target, plus a penalty for a mass other than one.

    .. math:: (p - q)^\top C_0 (p - q) + \frac{\lambda}{K} (1^\top q - 1)^2 + w (\mu_p - \mu_q)^2

    With w = 0 this is Eq. 5 of the paper with its constant corrected: as printed, the penalty pulls the mass of q to
    :math:`\sqrt{K}`. With ``mass_penalty_scale="total"`` the penalty is :math:`\lambda (1^\top q - 1)^2`. The means
    :math:`\mu` are those of the masses brought to a total of one, as in `with_unit_mass`.

    Args:
        support: K atoms. For the paper's numbers use unit spacing: a spacing of h multiplies the first term by h.
        target: p, (..., K) signed masses, for instance from `backup`.
        prediction: q, (..., K) outputs of the model. Leading axes broadcast.
        mass_penalty: :math:`\lambda \ge 0`. Any value in `optimal_penalty_range` is conditioned best; the paper has 10
            on unit spacing. Plain gradient descent needs steps below one over twice the upper end of that range.
        mass_penalty_scale: what the penalty multiplies, see above.
        mean_weight: :math:`w \ge 0`, on means in the units of the support. Actions are compared by means, and of the
            Cramér distance the mean is one direction of K - 1; docs/study.md has the effect of 0.1 on unit spacing.

    Returns:
        (...) losses.

    Example:
        >>> import numpy as np
        >>> support = Support([-1.0, 0.0, 1.0])
        >>> cramer_loss(support, np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0]), mass_penalty=1.0)
        np.float64(1.0)
    """
    require_choice("mass_penalty_scale", mass_penalty_scale, ("orthonormal", "total"))
    mass_penalty = require_penalty(mass_penalty)
    mean_weight = require_scale("mean_weight", mean_weight, zero_allowed=True)
    xp, target, prediction = on_support(support, target=target, prediction=prediction)
    excess = xp.sum(prediction, axis=-1) - 1.0
    weight = mass_penalty / support.num_atoms if mass_penalty_scale == "orthonormal" else mass_penalty
    cumulative = xp.cumulative_sum(target - prediction, axis=-1)
    return shape_energy(support, xp, cumulative, mean_weight) + weight * excess**2


def categorical_cross_entropy(target: Array, logits: Array) -> Array:
    r"""Cross-entropy of C51, :math:`-\sum_i p_i \log \mathrm{softmax}(l)_i`, through a stable log-softmax.

    Its gradient in the logits is ``softmax(logits) - target`` for targets that sum to one.

    Args:
        target: p, (..., K) probabilities.
        logits: l, (..., K). Leading axes broadcast.

    Returns:
        (...) losses.
    """
    xp, target, logits = as_floats(target=target, logits=logits)
    require_same_last_axis("target", target, "logits", logits)
    require_finite(target=target, logits=logits)
    target, logits = broadcast(xp, target=target, logits=logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    log_probs = shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
    return -xp.sum(target * log_probs, axis=-1)


def cdf_cross_entropy(target: Array, logits: Array) -> Array:
    r"""Cross-entropy of L51: one binary cross-entropy for each height of the CDF, summed.

    .. math:: -\sum_{i=1}^{K-1} F^*_i \log F_i + (1 - F^*_i) \log(1 - F_i), \qquad F_i = \sigma(l_i)

    with :math:`F^*_i = p_1 + \dots + p_i`. The squared Cramér distance on unit-spaced atoms is the sum of the squared
    errors of the same heights, so both losses are least at the same prediction, also in expectation over targets. The
    gradient in the logits is :math:`F - F^*`, bounded by one.

    Args:
        target: p, (..., K) masses of total one, for instance from `backup`.
        logits: l, (..., K - 1), one for each atom but the last. Leading axes broadcast.

    Returns:
        (...) losses.

    Example:
        >>> import numpy as np
        >>> cdf_cross_entropy(np.array([0.5, 0.5]), np.array([0.0])) / np.log(2)
        np.float64(1.0)
    """
    xp, target, logits = as_floats(target=target, logits=logits)
    _require_last_axis(logits=logits)
    require_last_axis(logits.shape[-1] + 1, "the logits and one more", target=target)
    require_finite(target=target, logits=logits)
    target, logits = broadcast(xp, target=target, logits=logits)
    heights = xp.cumulative_sum(target, axis=-1)[..., :-1]
    return xp.sum(xp.logaddexp(logits, xp.zeros_like(logits)) - heights * logits, axis=-1)


def masses_of_cdf_logits(logits: Array) -> Array:
    r"""Masses of total one whose CDF has the heights :math:`\sigma(l_i)`: (..., K - 1) -> (..., K).

    Heights that go down make negative masses. `cdf_cross_entropy` trains such logits.

    Example:
        >>> import numpy as np
        >>> masses_of_cdf_logits(np.array([0.0, np.log(3)]))
        array([0.5 , 0.25, 0.25])
    """
    xp, logits = as_floats(logits=logits)
    _require_last_axis(logits=logits)
    require_finite(logits=logits)
    return masses_between(xp, (1.0 + xp.tanh(logits / 2)) / 2)


def quantile_huber(target: Array, quantiles: Array, levels: Array | None = None, threshold: Any = 1.0) -> Array:
    r"""Quantile Huber loss of QR-DQN: summed over predicted quantiles, averaged over target samples.

    .. math:: \sum_i \frac{1}{J} \sum_j |\tau_i - 1_{\delta_{ij} < 0}| \, \frac{L_\kappa(\delta_{ij})}{\kappa},
        \qquad \delta_{ij} = y_j - \theta_i

    with :math:`L_\kappa` the Huber function. A threshold of 0 gives the quantile regression loss,
    :math:`L_\kappa(\delta)/\kappa = |\delta|`.

    Args:
        target: y, (..., J) samples or quantiles of the target.
        quantiles: theta, (..., N) predictions. Leading axes broadcast.
        levels: tau, (N,) in [0, 1]; by default the midpoints (2i - 1) / 2N.
        threshold: kappa >= 0.

    Returns:
        (...) losses.

    Reference:
        Dabney et al. 2018, Eq. 10.
    """
    threshold = require_scale("threshold", threshold, zero_allowed=True)
    xp, target, quantiles = as_floats(target=target, quantiles=quantiles)
    _require_last_axis(target=target, quantiles=quantiles)
    require_finite(target=target, quantiles=quantiles)
    target, quantiles = broadcast(xp, target=target, quantiles=quantiles)
    count = quantiles.shape[-1]
    if levels is None:
        tau = (2 * xp.arange(count, dtype=quantiles.dtype, device=placement(xp, quantiles)) + 1) / (2 * count)
    else:
        _, tau, _ = as_floats(levels=levels, quantiles=quantiles)
        if tuple(tau.shape) != (count,):
            raise ValueError(f"levels must have shape ({count},), one for each quantile, got {tuple(tau.shape)}")
        require_in_unit_interval(levels=tau)
    delta = target[..., None, :] - quantiles[..., :, None]
    tau = xp.reshape(tau, (1,) * (quantiles.ndim - 1) + (count, 1))
    weight = xp.where(delta < 0, 1.0 - tau, tau)
    return xp.sum(xp.mean(weight * _scaled_huber(xp, delta, threshold), axis=-1), axis=-1)


def hl_gauss_targets(support: Support, values: Array, sigma: Any) -> Array:
    r"""Histogram targets for a scalar: a normal distribution around each value, cut to the support and binned.

    Atom i represents the bin between the midpoints to its neighbours; the end bins reach half a spacing beyond the end
    atoms. The distribution is normalised over the bins, in log space, so that a value far outside gives the end atom.

    Args:
        support: K atoms, the centres of the bins.
        values: (...).
        sigma: standard deviation > 0, in the units of the values; 0.75 spacings is a common choice.

    Returns:
        (..., K) probabilities.

    Reference:
        Imani and White 2018; Farebrother et al. 2024, section 3.1.
    """
    require_support(support)
    sigma = require_scale("sigma", sigma)
    low, high = 1e-6 * support.smallest_spacing, 1e3 * (support.v_max - support.v_min)
    if isinstance(sigma, float) and not low <= sigma <= high:  # beyond them rounding is all that is left
        raise ValueError(f"sigma must lie in [{low:g}, {high:g}] on this support, got {sigma:g}")
    xp, values = as_floats(values=values)
    require_finite(values=values)
    require_representable(xp, support, values)
    middles = (support.atoms[1:] + support.atoms[:-1]) / 2
    ends = support.atoms[[0, -1]] + support.spacings[[0, -1]] * np.array([-0.5, 0.5])
    edges = np.concatenate([ends[:1], middles, ends[1:]])
    # Beyond this distance the end atom has all the mass, to rounding; up to it no digit of the distance is lost.
    beyond = 40 * sigma * (1 + sigma / float(support.spacings[[0, -1]].min()))
    lowest, highest = float(edges[0]) - beyond, float(edges[-1]) + beyond
    column = xp.minimum(xp.maximum(values, xp.zeros_like(values) + lowest), xp.zeros_like(values) + highest)[..., None]
    scores = (along_last(xp, edges, column) - column) / sigma
    low, high = scores[..., :-1], scores[..., 1:]
    # Above the value both ends of a bin have a CDF near one: mirror it to where the CDF is small and precise.
    mirrored = low + high > 0
    low, high = xp.where(mirrored, -high, low), xp.where(mirrored, -low, high)
    log_low, log_high = log_normal_cdf(xp, low), log_normal_cdf(xp, high)
    log_bins = log_high + xp.log1p(-xp.exp(log_low - log_high))
    weights = xp.exp(log_bins - xp.max(log_bins, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def td_squared(target: Array, prediction: Array) -> Array:
    r"""Squared error :math:`(y - v)^2`, elementwise: (...), (...) -> (...)."""
    _, delta = _td_error(target, prediction)
    return delta**2


def td_huber(target: Array, prediction: Array, threshold: Any = 1.0) -> Array:
    r"""Huber loss, elementwise: :math:`\delta^2/2` up to the threshold, :math:`\kappa(|\delta| - \kappa/2)` past it.

    Args:
        target: y, (...).
        prediction: v, (...).
        threshold: kappa > 0.

    Returns:
        (...) losses.
    """
    threshold = require_scale("threshold", threshold)
    xp, delta = _td_error(target, prediction)
    return threshold * _scaled_huber(xp, delta, threshold)


def _td_error(target: Array, prediction: Array) -> tuple[Any, Array]:
    xp, target, prediction = as_floats(target=target, prediction=prediction)
    require_finite(target=target, prediction=prediction)
    target, prediction = broadcast(xp, ("target", "prediction"), target=target, prediction=prediction)
    return xp, target - prediction


def _require_last_axis(**arrays: Array) -> None:
    for name, array in arrays.items():
        if array.ndim == 0 or array.shape[-1] == 0:
            raise ValueError(f"{name} must have a last axis of at least one, got shape {tuple(array.shape)}")


def _scaled_huber(xp: Any, delta: Array, threshold: Any) -> Array:
    """Huber function divided by its threshold: slope one far out, and |delta| for a threshold of zero."""
    size = xp.abs(delta)
    kappa = xp.zeros_like(size) + threshold
    # min(|d|, kappa) written so that both branches have finite gradients everywhere.
    inner = xp.minimum(size, kappa)
    divisor = xp.where(kappa > 0, kappa, xp.ones_like(kappa))
    return xp.where(kappa > 0, inner * (size - inner / 2) / divisor, size)
