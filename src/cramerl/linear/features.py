"""Builders of feature matrices (S, D): row x holds the features of state x."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from cramerl._arrays import Floats, host_reals
from cramerl._checks import require_count, require_scale, require_seed


def tabular(num_states: int) -> Floats:
    """One feature for each state: the identity."""
    return np.eye(require_count("num_states", num_states))


def aggregation(num_states: int, groups: int | ArrayLike) -> Floats:
    """One feature for each group of states.

    Args:
        num_states: S.
        groups: a number of groups, of equally many successive states, or (S,) the group of each state.
    """
    size = require_count("num_states", num_states)
    if np.ndim(groups) == 0:
        number = require_count("groups", groups)
        if number > size:
            raise ValueError(f"groups must be at most num_states = {size}, got {number}")
        label = np.arange(size) * number // size
    else:
        label = np.asarray(groups)
        if label.shape != (size,) or label.dtype.kind not in "iu" or label.min() < 0:
            raise ValueError(f"groups must hold one integer >= 0 for each of {size} states, got shape {label.shape}")
    return np.eye(int(label.max()) + 1)[label]


def polynomial(coordinates: ArrayLike, degree: int) -> Floats:
    """All products of powers of the coordinates up to a total degree, the constant first.

    Coordinates are scaled to [-1, 1], and Chebyshev polynomials replace powers: the span is the same and far better
    conditioned.

    Args:
        coordinates: (S,) or (S, C).
        degree: >= 0.
    """
    scaled = 2 * _unit_box(coordinates) - 1
    degree = require_count("degree", degree, least=0)
    powers = np.cos(np.arange(degree + 1) * np.arccos(np.clip(scaled, -1, 1))[..., None])  # (S, C, degree + 1)
    exponents = [e for e in product(range(degree + 1), repeat=scaled.shape[1]) if sum(e) <= degree]
    axes = np.arange(scaled.shape[1])
    return np.stack([powers[:, axes, e].prod(axis=1) for e in sorted(exponents, key=sum)], axis=1)


def fourier(coordinates: ArrayLike, order: int) -> Floats:
    """Cosines cos(pi c.x) of the coordinates scaled to [0, 1], for integer c from 0 to the order; the constant first.

    Args:
        coordinates: (S,) or (S, C).
        order: >= 0; gives (order + 1)^C features.

    Reference:
        Konidaris, Osentoski and Thomas 2011.
    """
    scaled = _unit_box(coordinates)
    order = require_count("order", order, least=0)
    frequencies = np.array(list(product(range(order + 1), repeat=scaled.shape[1])))
    return np.cos(np.pi * scaled @ frequencies.T)


def rbf(coordinates: ArrayLike, centres: int | ArrayLike, width: float | None = None) -> Floats:
    """Gaussian bumps ``exp(-(x - c)**2 / (2 * width**2))`` around centres.

    Args:
        coordinates: (S,) or (S, C).
        centres: centres for each axis of an even grid over the range of the coordinates, or (D,) or (D, C) centres.
        width: standard deviation, in the units of the coordinates; by default the spacing of the grid.
    """
    points = _points("coordinates", coordinates)
    if isinstance(centres, int | np.integer):
        number = require_count("centres", centres, least=2)
        axes = [np.linspace(low, high, number) for low, high in zip(points.min(0), points.max(0), strict=True)]
        middle = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=-1)
        spacing = max(float(a[1] - a[0]) for a in axes)
        width = spacing if width is None else width
    else:
        middle = _points("centres", centres)
    width = float(require_scale("width", width))
    if middle.shape[1] != points.shape[1]:
        raise ValueError(f"centres must have {points.shape[1]} coordinates, got {middle.shape[1]}")
    with np.errstate(over="ignore"):  # a bump that is narrow enough is zero elsewhere
        distance_sq = (((points[:, None, :] - middle[None, :, :]) / width) ** 2).sum(axis=-1)
    return np.exp(-distance_sq / 2)


def random_features(num_states: int, num_features: int, seed: int) -> Floats:
    """Independent standard normal features."""
    shape = (require_count("num_states", num_states), require_count("num_features", num_features))
    return np.random.default_rng(require_seed(seed)).normal(size=shape)


def with_bias(features: ArrayLike) -> Floats:
    """The features with a column of ones in front, with which every guarantee holds in its strongest form."""
    values = host_reals("features", features)
    if values.ndim != 2:
        raise ValueError(f"features must have shape (S, D), got {values.shape}")
    return np.concatenate([np.ones((len(values), 1)), values], axis=1)


def _unit_box(coordinates: ArrayLike) -> Floats:
    points = _points("coordinates", coordinates)
    low, high = points.min(axis=0), points.max(axis=0)
    return (points - low) / np.where(high > low, high - low, 1.0)


def _points(name: str, values: ArrayLike) -> Floats:
    points = host_reals(name, values)
    points = points[:, None] if points.ndim == 1 else points
    if points.ndim != 2 or not points.size or not np.isfinite(points).all():
        raise ValueError(f"{name} must be finite, of shape (S,) or (S, C), got shape {np.shape(values)}")
    return points
