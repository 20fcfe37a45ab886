"""`cramerl.train` from Python: agents by name, several seeds, what it shows, and what its result shows."""

import re
import xml.etree.ElementTree as ET

import pytest
from lenient import lenient

import cramerl
from cramerl.runs import forecast
from cramerl.runs.config import TrainConfig
from cramerl.runs.group import RunGroup
from cramerl.runs.trainer import Run
from cramerl.runs.training import _asked_group

# The settings of tests/deep/test_agent.py, whose programs are compiled once for both.
TINY = {"steps": 240, "iteration_steps": 240, "log_steps": 80, "min_replay_steps": 80, "num_atoms": 5, "batch_size": 4}
TINY |= {"network": "linear", "max_episode_steps": 20, "v_min": 0.0, "v_max": 20.0}


def asked(agent, env=None, preset=None, **settings):
    return _asked_group(agent, env, preset, settings)


def test_an_agent_by_its_name_is_its_preset():
    assert asked("s51", "CartPole-v1", steps=500) == RunGroup((cramerl.preset(None, "s51", "CartPole-v1", steps=500),))
    smoke = asked("QR-DQN", "cartpole-v1", "smoke", lr=1e-3, gamma=0.9).first
    assert smoke == cramerl.preset("smoke", "qr", "CartPole-v1", learning_rate=1e-3, discount=0.9)


@pytest.mark.parametrize("seeds", [[0, 2], (0, 2), range(0, 4, 2), {0: "a", 2: "b"}])
def test_several_seeds_are_a_group(seeds):
    group = asked("s51", "CartPole-v1", seed=seeds, learning_rate=[1e-4, 1e-3])
    assert [(one.seed, one.learning_rate) for one in group.configs] == [(0, 1e-4), (2, 1e-4), (0, 1e-3), (2, 1e-3)]


@pytest.mark.parametrize(
    ("arguments", "settings", "sentence"),
    [
        (("s51",), {}, "env must be the name of an environment, because agent is the name 's51', got None"),
        ((3,), {}, "runs must be a TrainConfig, several, or a RunGroup, got 3"),
        (([3],), {}, "runs must be a TrainConfig, several, or a RunGroup, got 3"),
        ((TrainConfig(), "runs/here"), {}, "env must not be given with whole settings, got 'runs/here'"),
        ((TrainConfig(),), {"steps": 5}, "steps must not be given with whole settings, got 5"),
        (("s51", "CartPole-v1"), {"seed": []}, "seed must be one value or more, got none"),
        (("s51", "CartPole-v1"), {"lr": 1, "learning_rate": 1}, "learning_rate must be given once, got it under two"),
        (("s51", "CartPole-v1"), {"target_update": 5}, "'target_update' is not a setting; did you mean 'target_period"),
        (("dqn", "CartPole-v1"), {"mass_penalty": [1, 2]}, "mass_penalty is a setting of s51 and would be ignored"),
        (("CartPole-v1", "s51"), {}, "agent must come before env, got agent 'CartPole-v1' and env 's51'"),
    ],
)
def test_arguments_that_do_not_go_together(arguments, settings, sentence):
    with pytest.raises(ValueError, match="^" + sentence.replace("(", r"\(")):
        asked(*arguments, **settings)


def test_progress_and_a_function_for_it_are_not_given_both():
    with pytest.raises(ValueError, match=r"^progress must not be True with on_progress"):
        cramerl.train("s51", "CartPole-v1", progress=True, on_progress=print)


def test_a_result_is_one_line_and_a_drawing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(forecast, "_ENOUGH", 0.0)
    monkeypatch.setattr(forecast, "_SHORT", 0.0)
    with lenient():
        run = cramerl.train("S51", "cartpole-v1", preset="smoke", out=tmp_path / "run", progress=True, **TINY)
    words = capsys.readouterr().err
    assert "step 240/240" in words
    assert (
        len(re.findall(r"this will take about \d+ s on this [CGT]PU \([\d,]+ steps/s while learning\)\n", words)) == 1
    )
    assert repr(run).startswith(f"Run('{tmp_path / 'run'}', finished at step 240, mean return ")
    assert "\n" not in repr(run)
    assert ET.fromstring(f"<div>{run._repr_html_()}</div>").find(".//{http://www.w3.org/2000/svg}polyline") is not None
    assert (cramerl.load_agent(run.folder).spec.name, run.rows[0]["seed"]) == ("CartPole-v1", 0)
    assert cramerl.load_agent(run.folder).support == cramerl.Support.uniform(0, 20, 5)


def test_a_result_without_episodes_has_no_return():
    stopped = Run("runs/x", 1_000, False, [{"step": 1_000, "seed": 0}])
    assert repr(stopped) == "Run('runs/x', stopped at step 1,000)"
    ET.fromstring(f"<div>{stopped._repr_html_()}</div>")
