"""What `cramerl evaluate` reads and writes, for processes and for logs."""

from cramerl.evaluations.logs import LogEvaluation, evaluate_log, log_layout, log_summary, write_log_evaluation
from cramerl.evaluations.page import write_page
from cramerl.evaluations.processes import FILES, PICTURE, load_policy, named_features, named_process, write_evaluation
from cramerl.linear.evaluation_file import MADE_BY

__all__ = [
    "FILES",
    "MADE_BY",
    "PICTURE",
    "LogEvaluation",
    "evaluate_log",
    "load_policy",
    "log_layout",
    "log_summary",
    "named_features",
    "named_process",
    "write_evaluation",
    "write_log_evaluation",
    "write_page",
]
