"""Distributional reinforcement learning built on the Cramér distance.

Functions take NumPy, JAX or PyTorch arrays, act on the last axis and broadcast over the others. Agents need the extra
``deep``: `train`, `resume`, `load_agent`, `export_agent` and `watch` are loaded when first used, as are `evaluate`,
`report`, `Recorder` (extra ``plot``) and the settings of runs.
"""

import importlib
import typing

from cramerl._extras import EXTRA_OF as _EXTRA_OF
from cramerl._version import __version__ as __version__
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
    cdf_cross_entropy,
    cramer_loss,
    hl_gauss_targets,
    masses_of_cdf_logits,
    quantile_huber,
    td_huber,
    td_squared,
)
from cramerl.measures import (
    cdf,
    clipped_mass,
    cvar,
    mean,
    nearest_distribution,
    negative_mass,
    quantile,
    rearranged_distribution,
    total_mass,
    variance,
    with_unit_mass,
)
from cramerl.projections import backup, backup_matrix, project, project_affine
from cramerl.supports import Support

if typing.TYPE_CHECKING:
    from cramerl.linear.evaluation import evaluate as evaluate
    from cramerl.reports.build import report as report
    from cramerl.runs.agents import export_agent as export_agent
    from cramerl.runs.agents import load_agent as load_agent
    from cramerl.runs.config import TrainConfig as TrainConfig
    from cramerl.runs.presets import preset as preset
    from cramerl.runs.training import resume as resume
    from cramerl.runs.training import train as train
    from cramerl.watching.recorder import Recorder as Recorder
    from cramerl.watching.watch import watch as watch

__all__ = [
    "Support",
    "TrainConfig",
    "UnitMassBasis",
    "backup",
    "backup_matrix",
    "categorical_cross_entropy",
    "cdf",
    "cdf_cross_entropy",
    "clipped_mass",
    "condition_number",
    "cramer_distance_sq",
    "cramer_gram",
    "cramer_gram_inverse",
    "cramer_gram_sqrt",
    "cramer_loss",
    "cvar",
    "evaluate",
    "hl_gauss_targets",
    "masses_of_cdf_logits",
    "mean",
    "nearest_distribution",
    "negative_mass",
    "optimal_penalty_range",
    "preset",
    "project",
    "project_affine",
    "quantile",
    "quantile_huber",
    "raw_distance_sq",
    "raw_gram",
    "rearranged_distribution",
    "td_huber",
    "td_squared",
    "total_mass",
    "unit_mass_basis",
    "variance",
    "with_unit_mass",
]

# Loaded when first used. Functions that need an extra are not in `__all__`, so a star import leaves them out.
_LAZY = {
    "Recorder": "cramerl.watching.recorder",
    "TrainConfig": "cramerl.runs.config",
    "evaluate": "cramerl.linear.evaluation",
    "export_agent": "cramerl.runs.agents",
    "load_agent": "cramerl.runs.agents",
    "preset": "cramerl.runs.presets",
    "report": "cramerl.reports.build",
    "resume": "cramerl.runs.training",
    "train": "cramerl.runs.training",
    "watch": "cramerl.watching.watch",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("cramerl"):
            raise
        extra = _EXTRA_OF.get((error.name or "").partition(".")[0], "deep")
        needed = f"cramerl.{name} needs {error.name}; install it with: pip install 'cramerl[{extra}]'"
        raise ImportError(needed) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LAZY})
