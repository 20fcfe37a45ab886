"""From settings to the parts of a run."""

import pytest

from cramerl.runs import build
from cramerl.runs.config import TrainConfig


def test_a_jax_program_is_needed_for_lanes():
    with pytest.raises(ValueError, match=r"^lanes are for .* JAX programs, gym:CartPole-v1 is none; got 2$"):
        build.make_loop(TrainConfig(env="gym:CartPole-v1", lanes=2))
