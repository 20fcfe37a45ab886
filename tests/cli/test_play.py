"""`cramerl play`: the scores of a run and of its export."""

import json
from argparse import Namespace

import pytest
from commands import refused, run, run_process

from cramerl.cli.play import print_episodes
from cramerl.deep.agent import Episode
from cramerl.runs.config import TrainConfig


def test_play_a_run_and_its_export(trained, tmp_path):
    folder, _ = trained
    played = run_process("play", folder, "--episodes", "3", "--epsilon", "0", "--seed", "7")
    assert played.returncode == 0, played.stderr
    *episodes, mean = played.stdout.splitlines()
    assert len(episodes) == 3
    assert mean.startswith("mean score ")
    assert mean.endswith("(standard error): s51 on CartPole-v1, playing without learning, 0 of the actions random")

    assert run("export", folder, "--out", tmp_path / "agent").returncode == 0
    again = run("play", tmp_path / "agent", "--episodes", "3", "--epsilon", "0", "--seed", "7", "--json")
    record = json.loads(again.stdout)
    scores = [episode["score"] for episode in record["episodes"]]
    assert [f"{score:,.2f}" for score in scores] == [line.split()[3] for line in episodes]
    assert record["mean"] == pytest.approx(sum(scores) / 3)


def test_one_episode_has_no_standard_error(capsys):
    for as_json in (True, False):
        options = Namespace(json=as_json, epsilon=0.0, seed=0, lane=0)
        print_episodes(options, TrainConfig(agent="s51", env="pong"), [Episode(-21.0, 764)])
        words = capsys.readouterr().out
        assert ('"standard_error": null' if as_json else "mean score -21.00 (one episode): s51 on pong") in words


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["./nowhere"], "nowhere has no config.json"),
        (["nowhere"], "there is no 'nowhere'; there are c51, dqn, hl_gauss, l51, qr, s51, u51 for each of asterix"),
        (["nowhere", "--epsilon", "2"], "--epsilon: must be a number in [0, 1], got '2'"),
        (["nowhere", "--episodes", "0"], "--episodes: must be an integer >= 1, got '0'"),
    ],
)
def test_bad_input(arguments, sentence, tmp_path):
    assert sentence in refused("play", *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_agent_that_comes_with_the_package():
    words = ("--episodes", "2", "--max-steps", "40", "--json")
    chosen, named = run("play", "Breakout", *words), run("play", "breakout-minatar/L51", *words)
    assert chosen.returncode == named.returncode == 0, chosen.stderr
    said = "cramerl: Breakout means breakout/l51; there are also c51, dqn, hl_gauss, qr, s51, u51\n"
    assert chosen.stderr == said + named.stderr
    assert json.loads(chosen.stdout) == json.loads(named.stdout)
    assert json.loads(chosen.stdout)["env"] == "Breakout-MinAtar"
