"""What `cramerl evaluate` and `cramerl predict` read and write, for processes and for logs."""

from cramerl.evaluations.clusters import (
    ClusterEvaluation,
    cluster_layout,
    cluster_summary,
    evaluate_on_cluster,
    write_cluster_evaluation,
)
from cramerl.evaluations.log_files import LOG_FILES, left_by_a_log, read_saved, write_log_evaluation
from cramerl.evaluations.logs import data_source, evaluate_log, is_refused, named_policies, read_log
from cramerl.evaluations.page import write_page
from cramerl.evaluations.predictions import (
    PREDICTED_BY,
    Asked,
    first_rows,
    predicted,
    predictions_summary,
    write_predictions,
)
from cramerl.evaluations.processes import FILES, PICTURE, load_policy, named_features, named_process, write_evaluation
from cramerl.linear.evaluation_file import MADE_BY

__all__ = [
    "FILES",
    "LOG_FILES",
    "MADE_BY",
    "PICTURE",
    "PREDICTED_BY",
    "Asked",
    "ClusterEvaluation",
    "cluster_layout",
    "cluster_summary",
    "data_source",
    "evaluate_log",
    "evaluate_on_cluster",
    "first_rows",
    "is_refused",
    "left_by_a_log",
    "load_policy",
    "named_features",
    "named_policies",
    "named_process",
    "predicted",
    "predictions_summary",
    "read_log",
    "read_saved",
    "write_cluster_evaluation",
    "write_evaluation",
    "write_log_evaluation",
    "write_page",
    "write_predictions",
]
