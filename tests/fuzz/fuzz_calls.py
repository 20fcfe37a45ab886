"""Calls of the functions of the library with one argument that is not what it should be."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from lenient import lenient

import cramerl
from cramerl import Support

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
    "Support.uniform": {"v_min": -1.0, "v_max": 1.0, "num_atoms": 5},
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
    name = list(CALLS)[rng.integers(len(CALLS))]
    arguments, library = dict(CALLS[name]), LIBRARIES[rng.integers(len(LIBRARIES))]
    for key, value in arguments.items():
        if isinstance(value, list) and rng.random() < 0.7:
            values = np.asarray(value, np.float32 if rng.random() < 0.5 else np.float64)
            arguments[key] = library(values)
    bad = list(arguments)[rng.integers(len(arguments))]
    arguments[bad] = HOSTILE[rng.integers(len(HOSTILE))]()
    function = cramerl.Support.uniform if name == "Support.uniform" else getattr(cramerl, name)
    try:
        with lenient(), np.errstate(all="ignore"):
            function(**arguments)
    except (ValueError, TypeError) as error:
        named = any(word in str(error) for word in arguments)
        return None if named else f"{name}({bad}={arguments[bad]!r}): {type(error).__name__}: {error}"
    except RuntimeError as error:
        return None if str(error) == "mine" else f"{name}({bad}={arguments[bad]!r}): {error}"
    except Exception as error:
        return f"{name}({bad}={arguments[bad]!r}): {type(error).__name__}: {error}"
    return None
