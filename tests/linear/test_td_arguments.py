"""What `LinearTD` refuses, and the sentence that says why."""

from typing import Any

import numpy as np
import pytest
from oracles import SUPPORTS

from cramerl import Support
from cramerl.linear import LinearTD, StepSize, Transitions


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"support": [0.0, 1.0]}, "support must be a Support, got list"),
        ({"num_features": 0}, "num_features must be an integer >= 1, got 0"),
        ({"num_features": 2.0}, "num_features must be an integer >= 1, got 2.0"),
        ({"discount": 1.0}, r"discount must lie in \[0, 1\), got 1.0"),
        ({"discount": "0.9"}, r"discount must lie in \[0, 1\), got '0.9'"),
        ({"normalisation": "none"}, "normalisation must be one of 'before', 'after', 'affine', got 'none'"),
        ({"mass_penalty": 0.0}, "mass_penalty must be a finite number > 0, got 0.0"),
        ({"step_size": 0.0}, "step_size must be a finite number > 0, got 0.0"),
        ({"step_size": -0.1}, "step_size must be a finite number > 0, got -0.1"),
        ({"step_size": "auto"}, "step_size must be a finite number > 0, got 'auto'"),
        ({"averaging": -1}, r"averaging must be an integer >= 0 or a fraction in \[0, 1\), got -1"),
        ({"averaging": 1.0}, r"averaging must be an integer >= 0 or a fraction in \[0, 1\), got 1.0"),
        ({"averaging": True}, r"averaging must be .* got True"),
        ({"averaging": None}, r"averaging must be .* got None"),
        ({"initial_weights": np.zeros((3, 2))}, r"initial_weights must have shape \(2, 3\), got \(3, 2\)"),
        ({"initial_weights": np.full((2, 3), np.nan)}, "initial_weights must be finite, got nan"),
        (
            {"initial_weights": np.ones((2, 3)), "normalisation": "affine"},
            "rows of sum 0 for 'affine', got .* sums to 3",
        ),
    ],
)
def test_bad_settings(options, sentence):
    settings: dict[str, Any] = {"support": Support([0.0, 1.0, 2.0]), "num_features": 2, "discount": 0.9, **options}
    with pytest.raises(ValueError, match=sentence):
        LinearTD(**settings)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"initial": 0.0}, "initial must be a finite number > 0, got 0.0"),
        ({"exponent": -0.5}, "exponent must be a finite number >= 0, got -0.5"),
        ({"exponent": 1.5}, r"exponent must lie in \[0, 1\], got 1.5"),
        ({"decay_updates": 0}, "decay_updates must be a finite number > 0, got 0"),
    ],
)
def test_bad_step_sizes(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        StepSize(**{"initial": 0.1, **options})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"features": np.ones((4, 3))}, r"features must have a last axis of 2 \(the features\), got shape \(4, 3\)"),
        (
            {"features": np.ones((1, 4, 2))},
            r"features must have shape \(n, 2\) with n >= 1, or \(2,\), got \(1, 4, 2\)",
        ),
        ({"features": np.ones((0, 2))}, r"features must have shape \(n, 2\) with n >= 1, or \(2,\), got \(0, 2\)"),
        ({"features": np.full((4, 2), np.inf)}, "features must be finite, got inf"),
        ({"features": [["a", "b"]] * 4}, "features must be an array of real numbers, got list"),
        ({"features": [[1.0, 2.0], [3.0]]}, "features must be an array of real numbers, got list"),
        (
            {"next_features": np.ones((3, 2))},
            r"next_features must have shape \(4, 2\) to go with features, got \(3, 2\)",
        ),
        ({"next_features": np.full((4, 2), np.nan)}, "next_features must be finite, got nan"),
        ({"rewards": np.ones(3)}, r"rewards must have shape \(4,\) to go with features, got \(3,\)"),
        ({"rewards": 1.0}, r"rewards must have shape \(4,\) to go with features, got \(\)"),
        ({"rewards": np.full(4, np.nan)}, "rewards must be finite, got nan"),
        ({"terminated": np.zeros(3, dtype=bool)}, r"terminated must have shape \(4,\) to go with features, got \(3,\)"),
        ({"terminated": np.zeros(4)}, "terminated must hold booleans, got dtype float64"),
    ],
)
@pytest.mark.parametrize("method", ["update", "run"])
def test_bad_transitions(method, options, sentence):
    given = {"features": np.ones((4, 2)), "rewards": np.ones(4), "next_features": np.ones((4, 2)), **options}
    td = LinearTD(SUPPORTS["pair"], 2, 0.9)
    with pytest.raises(ValueError, match=sentence):
        getattr(td, method)(**given)
    assert td.num_updates == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"states": np.array([0, 3])}, "states must lie in 0 to 2, the rows of feature_matrix, got 0 to 3"),
        ({"next_states": np.array([-1, 0])}, "next_states must lie in 0 to 2, .* got -1 to 0"),
        ({"states": np.array([0.0, 1.0])}, r"states must hold \(T,\) integers, T >= 1, got shape \(2,\) of float64"),
        ({"next_states": np.array([0])}, r"next_states must have shape \(2,\) to go with states, got \(1,\)"),
        ({"rewards": np.array([np.inf, 0.0])}, "rewards must be finite, got inf"),
        ({"terminated": np.array([0, 1])}, "terminated must hold booleans, got dtype int"),
    ],
)
def test_bad_sampled_transitions(change, sentence):
    sample = Transitions(np.array([0, 1]), np.zeros(2), np.array([1, 2]), np.zeros(2, dtype=bool))
    with pytest.raises(ValueError, match=sentence):
        LinearTD(SUPPORTS["pair"], 2, 0.9).run_transitions(np.ones((3, 2)), sample._replace(**change))


def test_bad_arguments_of_runs():
    td = LinearTD(SUPPORTS["pair"], 2, 0.9)
    sample = Transitions(np.array([0]), np.zeros(1), np.array([1]), np.zeros(1, dtype=bool))
    with pytest.raises(ValueError, match="transitions must be Transitions, got tuple"):
        td.run_transitions(np.ones((3, 2)), tuple(sample))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"feature_matrix must have shape \(S, 2\), got \(2,\)"):
        td.run_transitions(np.ones(2), sample)
    for run in (
        lambda: td.run_transitions(np.ones((3, 2)), sample, batch_size=0),
        lambda: td.run([1, 2], 0, [1, 2], batch_size=0),
    ):
        with pytest.raises(ValueError, match="batch_size must be an integer >= 1, got 0"):
            run()
    with pytest.raises(ValueError, match=r"step_size\(0\) must be a finite number > 0, got -1"):
        LinearTD(SUPPORTS["pair"], 1, 0.9, step_size=lambda t: -1.0).update([1.0], 0.0, [1.0])
