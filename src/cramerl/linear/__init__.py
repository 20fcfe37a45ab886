"""Policy evaluation with linear features: the whole return distribution, exact and deterministic, in float64."""

from cramerl.linear import examples, features
from cramerl.linear.certificates import Bound, Certificate
from cramerl.linear.evaluation import Evaluation, Iterate, evaluate, projected_bellman_iterates
from cramerl.linear.features import (
    aggregation,
    fourier,
    polynomial,
    random_features,
    rbf,
    tabular,
    with_bias,
)
from cramerl.linear.processes import MarkovRewardProcess, Transitions

__all__ = [
    "Bound",
    "Certificate",
    "Evaluation",
    "Iterate",
    "MarkovRewardProcess",
    "Transitions",
    "aggregation",
    "evaluate",
    "examples",
    "features",
    "fourier",
    "polynomial",
    "projected_bellman_iterates",
    "random_features",
    "rbf",
    "tabular",
    "with_bias",
]
