"""Distributional reinforcement learning built on the Cramér distance.

Functions take NumPy, JAX or PyTorch arrays, act on the last axis and broadcast over the others.
"""

from cramerl.cramer import (
    UnitMassBasis,
    condition_number,
    cramer_distance_sq,
    cramer_gram,
    cramer_gram_inverse,
    cramer_gram_sqrt,
    optimal_penalty_range,
    raw_distance_sq,
    raw_gram,
    unit_mass_basis,
)
from cramerl.losses import (
    categorical_cross_entropy,
    cramer_loss,
    hl_gauss_targets,
    quantile_huber,
    td_huber,
    td_squared,
)
from cramerl.measures import (
    cdf,
    cvar,
    mean,
    nearest_distribution,
    negative_mass,
    quantile,
    total_mass,
    variance,
)
from cramerl.projections import backup, backup_matrix, project, project_affine
from cramerl.supports import Support

__version__ = "0.1.0"

__all__ = [
    "Support",
    "UnitMassBasis",
    "backup",
    "backup_matrix",
    "categorical_cross_entropy",
    "cdf",
    "condition_number",
    "cramer_distance_sq",
    "cramer_gram",
    "cramer_gram_inverse",
    "cramer_gram_sqrt",
    "cramer_loss",
    "cvar",
    "hl_gauss_targets",
    "mean",
    "nearest_distribution",
    "negative_mass",
    "optimal_penalty_range",
    "project",
    "project_affine",
    "quantile",
    "quantile_huber",
    "raw_distance_sq",
    "raw_gram",
    "td_huber",
    "td_squared",
    "total_mass",
    "unit_mass_basis",
    "variance",
]
