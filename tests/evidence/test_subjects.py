"""What the evidence needs to know of a run."""

from cramerl.evidence.subjects import Subject, agent_order, seed_order
from cramerl.runs.presets import preset


def test_a_run_of_cramerl_has_settings_and_others_have_none():
    config = preset(None, "s51", "Breakout-MinAtar", seed=3, steps=1000)
    own = Subject.of(config)
    assert (own.agent, own.env, own.seed, own.steps) == ("s51", "Breakout-MinAtar", 3, 1000)
    assert own.learned_with["learning_rate"] == config.learning_rate
    assert Subject("ppo", "g", "first").learned_with == {}


def test_orders():
    assert sorted(["ppo", "u51", "A2C", "dqn"], key=agent_order)[2:] == ["A2C", "ppo"]
    assert sorted(["b", 10, 9, "a"], key=seed_order) == [9, 10, "a", "b"]
