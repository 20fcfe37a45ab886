"""Policy evaluation with linear features: the whole return distribution, exact and deterministic, in float64."""

from cramerl.linear import examples, features
from cramerl.linear.certificates import Bound, Certificate
from cramerl.linear.evaluation import Evaluation, Iterate, evaluate, projected_bellman_iterates
from cramerl.linear.features import aggregation, fourier, polynomial, random_features, rbf, tabular, with_bias
from cramerl.linear.log_certificates import LogCertificate
from cramerl.linear.logs.estimates import Estimate, ReturnDistribution
from cramerl.linear.logs.improvement import ImprovedPolicy, improve_policy
from cramerl.linear.logs.log import Log
from cramerl.linear.logs.policy_evaluation import PolicyEvaluation, PolicyEvaluations, evaluate_policy
from cramerl.linear.logs.saved_evaluation import SavedEvaluation, load_evaluation, save_evaluation
from cramerl.linear.logs.trust import Trust
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.processes import MarkovRewardProcess, Transitions
from cramerl.linear.sources.chunks import fit_logs
from cramerl.linear.sources.minari import read_minari
from cramerl.linear.sources.parquet import fit_parquet, read_parquet
from cramerl.linear.sources.ray import fit_ray
from cramerl.linear.support_choice import suggest_support
from cramerl.linear.td import LinearTD, StepSize
from cramerl.linear.transition_sums import SupportReport

__all__ = [
    "Bound",
    "Certificate",
    "DistributionalLSTD",
    "Estimate",
    "Evaluation",
    "ImprovedPolicy",
    "Iterate",
    "LinearTD",
    "Log",
    "LogCertificate",
    "MarkovRewardProcess",
    "PolicyEvaluation",
    "PolicyEvaluations",
    "ReturnDistribution",
    "SavedEvaluation",
    "StepSize",
    "SupportReport",
    "Transitions",
    "Trust",
    "aggregation",
    "evaluate",
    "evaluate_policy",
    "examples",
    "features",
    "fit_logs",
    "fit_parquet",
    "fit_ray",
    "fourier",
    "improve_policy",
    "load_evaluation",
    "polynomial",
    "projected_bellman_iterates",
    "random_features",
    "rbf",
    "read_minari",
    "read_parquet",
    "save_evaluation",
    "suggest_support",
    "tabular",
    "with_bias",
]
