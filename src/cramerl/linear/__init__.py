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
from cramerl.linear.logs import fit_logs, fit_parquet, read_minari, read_parquet
from cramerl.linear.lstd import DistributionalLSTD, LogCertificate, SupportReport
from cramerl.linear.processes import MarkovRewardProcess, Transitions
from cramerl.linear.ray_logs import fit_ray
from cramerl.linear.reference import suggest_support
from cramerl.linear.td import LinearTD, StepSize

__all__ = [
    "Bound",
    "Certificate",
    "DistributionalLSTD",
    "Evaluation",
    "Iterate",
    "LinearTD",
    "LogCertificate",
    "MarkovRewardProcess",
    "StepSize",
    "SupportReport",
    "Transitions",
    "aggregation",
    "evaluate",
    "examples",
    "features",
    "fit_logs",
    "fit_parquet",
    "fit_ray",
    "fourier",
    "polynomial",
    "projected_bellman_iterates",
    "random_features",
    "rbf",
    "read_minari",
    "read_parquet",
    "suggest_support",
    "tabular",
    "with_bias",
]
