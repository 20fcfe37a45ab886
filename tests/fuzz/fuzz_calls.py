"""Calls of the functions of the library with one argument that is not what it should be."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from lenient import lenient

import cramerl
from cramerl import Support, linear
from cramerl.linear import DistributionalLSTD, MarkovRewardProcess, examples

S = Support([-1.0, 0.0, 2.0])
EVEN = Support.uniform(-1, 1, 3)
MASSES, LOGITS = [0.2, 0.3, 0.5], [0.1, 0.2, -0.3]
ONE = {"support": S, "masses": MASSES}
# Every function with arguments that are right.
CALLS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("total_mass", "mean", "variance", "cdf", "negative_mass", "nearest_distribution"), ONE),
    "rearranged_distribution": {"support": EVEN, "masses": MASSES},
    "with_unit_mass": ONE,
    "quantile": ONE | {"level": 0.5},
    "cvar": ONE | {"level": 0.5},
    "clipped_mass": {"support": S, "rewards": 0.5, "discounts": 0.9, "masses": MASSES},
    "backup": {"support": S, "rewards": 0.5, "discounts": 0.9, "masses": MASSES},
    "backup_matrix": {"support": S, "reward": 0.5, "discount": 0.9},
    "project": {"support": S, "atoms": [0.5, 3.0, -1.0], "masses": MASSES},
    "project_affine": {**ONE, "matrix": [[1.0, 1.0, 1.0]], "offset": [1.0], "mass_penalty": 1.0},
    "cramer_distance_sq": {"support": S, "p": MASSES, "q": LOGITS, "mass_penalty": 1.0},
    "raw_distance_sq": {"support": S, "p": MASSES, "q": LOGITS, "form": "tail"},
    "raw_gram": {"support": S, "form": "cumulative"},
    "cramer_gram": {"support": S, "mass_penalty": 1.0},
    "cramer_gram_inverse": {"support": S, "mass_penalty": 1.0},
    "cramer_gram_sqrt": {"support": S, "mass_penalty": 1.0},
    "condition_number": {"support": S, "mass_penalty": 1.0},
    "optimal_penalty_range": {"support": S},
    "unit_mass_basis": {"support": S},
    "cramer_loss": {"support": S, "target": MASSES, "prediction": LOGITS, "mass_penalty": 1.0, "mean_weight": 0.1},
    "categorical_cross_entropy": {"target": MASSES, "logits": LOGITS},
    "cdf_cross_entropy": {"target": MASSES, "logits": [0.1, 0.2]},
    "masses_of_cdf_logits": {"logits": LOGITS},
    "quantile_huber": {"target": MASSES, "quantiles": LOGITS, "threshold": 1.0},
    "hl_gauss_targets": {"support": S, "values": [0.1, 5.0], "sigma": 0.7},
    "td_squared": {"target": MASSES, "prediction": LOGITS},
    "td_huber": {"target": MASSES, "prediction": LOGITS, "threshold": 1.0},
    "Support": {"atoms": [0.0, 1.0, 3.0]},
}
PROCESS, PLACES = examples.ring(3), [0.0, 1.0, 3.0]
X, ENDS = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [False, True, False]
LOG = {"X": X, "rewards": PLACES, "X_next": X, "terminated": ENDS}
FITTED = DistributionalLSTD(S, 0.9).fit(*LOG.values())
# The same of the linear half, which takes arrays of NumPy alone.
LINEAR: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Support.uniform": (Support.uniform, {"v_min": -1.0, "v_max": 1.0, "num_atoms": 5}),
    "MarkovRewardProcess": (
        MarkovRewardProcess,
        {"transition": [[0.5, 0.5], [0.0, 1.0]], "rewards": [1.0, 0.0], "discount": 0.5},
    ),
    "from_outcomes": (MarkovRewardProcess.from_outcomes, {"outcomes": [(1.0, [[1.0]])], "discount": 0.5}),
    "from_mdp": (
        MarkovRewardProcess.from_mdp,
        {"transitions": [[[1.0], [1.0]]], "rewards": [1.0], "policy": "uniform", "discount": 0.5},
    ),
    "from_gymnasium": (
        MarkovRewardProcess.from_gymnasium,
        {"env_id": "FrozenLake-v1", "policy": "uniform", "discount": 0.5, "map_name": "4x4"},
    ),
    "true_returns": (PROCESS.true_returns, {"support": S}),
    "sample": (PROCESS.sample, {"num_steps": 5, "seed": 0}),
    "suggest_support": (linear.suggest_support, {"process": PROCESS, "num_atoms": 5, "deviations": 3.0}),
    "evaluate": (
        linear.evaluate,
        {"process": PROCESS, "features": np.eye(3), "support": S, "normalisation": "before", "tol": 1e-9}
        | {"state_distribution": [0.25, 0.5, 0.25], "method": "direct"},
    ),
    "queue": (examples.queue, {"capacity": 3, "arrival": 0.3, "service": 0.5, "discount": 0.9}),
    "gridworld": (examples.gridworld, {"width": 2, "height": 2, "discount": 0.9, "slip": 0.1}),
    "ring": (examples.ring, {"num_states": 3, "discount": 0.9, "stay": 0.1}),
    "random_walk": (examples.random_walk, {"num_states": 3, "discount": 0.9}),
    "tabular": (linear.tabular, {"num_states": 3}),
    "polynomial": (linear.polynomial, {"coordinates": PLACES, "degree": 2}),
    "fourier": (linear.fourier, {"coordinates": PLACES, "order": 2}),
    "rbf": (linear.rbf, {"coordinates": PLACES, "centres": 2, "width": 1.0}),
    "random_features": (linear.random_features, {"num_states": 3, "num_features": 2, "seed": 0}),
    "with_bias": (linear.with_bias, {"features": X}),
    "fit": (DistributionalLSTD(S, 0.9).fit, LOG | {"sample_weight": [1.0, 2.0, 1.0]}),
    "partial_fit": (lambda **log: DistributionalLSTD(S, 0.9).partial_fit(**log), LOG | {"discounts": [0.5, 0.2, 0.9]}),
    "fit_logs": (linear.fit_logs, {"estimator": DistributionalLSTD(S), "chunks": [tuple(LOG.values())]}),
    "DistributionalLSTD": (
        lambda **settings: DistributionalLSTD(**settings).fit(*LOG.values()),
        {"support": S, "discount": 0.9, "num_atoms": 5, "normalisation": "before", "regularisation": 0.1}
        | {"method": "auto", "tol": 1e-9, "next_distribution": "signed"},
    ),
    "LinearTD": (
        lambda **settings: linear.LinearTD(**settings).update([[0.1, 0.2]], [1.0], [[0.2, 0.1]]),
        {"support": S, "num_features": 2, "discount": 0.9, "normalisation": "before", "mass_penalty": 1.0}
        | {"step_size": 0.1, "averaging": 0.5, "initial_weights": np.zeros((2, 3))},
    ),
    "update": (
        lambda **batch: linear.LinearTD(S, 2, 0.9).update(**batch),
        {"features": [[0.1, 0.2]], "rewards": [1.0], "next_features": [[0.2, 0.1]]},
    ),
    "predict": (FITTED.predict, {"X": X}),
    "predict_quantile": (FITTED.predict_quantile, {"X": X, "level": [0.1, 0.5]}),
    "predict_cvar": (FITTED.predict_cvar, {"X": X, "level": 0.5}),
    "score": (FITTED.score, {"X": X, "returns": PLACES}),
}


class Rude:
    """An object that answers no question."""

    def __float__(self) -> float:
        raise RuntimeError("mine")


LIBRARIES: list[Callable[[Any], Any]] = [np.asarray, jnp.asarray]
if importlib.util.find_spec("torch"):
    LIBRARIES.append(lambda values: __import__("torch").as_tensor(values))
HOSTILE: list[Callable[[], Any]] = [
    *(
        lambda value=value: value
        for value in (None, "abc", "", b"x", True, -1, 0, 2, 10**400, -(10**400), 1 + 2j, [], {})
    ),
    *(lambda value=value: value for value in (np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 1e-200, 1e200, -0.0)),
    *(
        lambda value=value: [value] * 3
        for value in (None, "a", True, np.nan, np.inf, 1e308, 1e-320, -1.0, 0.0, 10**400)
    ),
    lambda: [[1.0], [1.0, 2.0]],
    lambda: np.zeros(0),
    lambda: np.zeros((2, 0, 3)),
    lambda: np.ones((2, 3), np.float16),
    lambda: np.ones(4),
    lambda: np.ones((5, 2, 3)),
    lambda: np.array(["a", "b", "c"]),
    lambda: np.array([1, None, 2], object),
    lambda: np.ma.masked_array([1.0, 2.0, 3.0], [True, False, False]),
    lambda: np.array(["2020-01-01"] * 3, "datetime64[D]"),
    lambda: np.array([1 + 1j, 2, 3]),
    lambda: jnp.array([jnp.nan, 1, 2]),
    lambda: jnp.ones((2, 3), jnp.int32),
    lambda: {1, 2, 3},
    lambda: print,
    lambda: S,
    lambda: [0.0, 1.0, 2.0],
    object,
    Rude,
    lambda: Support.uniform(0, 1e39, 3),
    lambda: Support([0.0, 1e-300, 1e300]),
    lambda: Support.uniform(1e8, 1e8 + 4, 3),
]


def trial(rng: np.random.Generator, _: Any, place: Path) -> str | None:
    """One function, one library, one argument in whose place something else stands."""
    library = LIBRARIES[rng.integers(len(LIBRARIES))]
    number = int(rng.integers(len(CALLS) + len(LINEAR)))
    if number < len(CALLS):
        name = list(CALLS)[number]
        function, arguments = getattr(cramerl, name), dict(CALLS[name])
    else:
        name, library = list(LINEAR)[number - len(CALLS)], np.asarray
        function, arguments = LINEAR[name][0], dict(LINEAR[name][1])
    for key, value in arguments.items():
        if isinstance(value, list) and isinstance(value[0], float) and rng.random() < 0.7:
            arguments[key] = library(np.asarray(value, np.float32 if rng.random() < 0.5 else np.float64))
    bad = list(arguments)[rng.integers(len(arguments))]
    arguments[bad] = HOSTILE[rng.integers(len(HOSTILE))]()
    what = f"{name}({bad}={arguments[bad]!r})"
    try:
        with lenient(), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**arguments)
    except (ValueError, TypeError) as error:
        named = any(word in str(error) for word in arguments)
        return None if named else f"{what}: {type(error).__name__}: {error}"
    except RuntimeError as error:
        return None if str(error) == "mine" else f"{what}: {error}"
    except Exception as error:
        return f"{what}: {type(error).__name__}: {error}"
    return None
