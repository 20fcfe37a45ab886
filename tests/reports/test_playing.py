"""Agents that play for `cramerl report`: what is drawn, and a sentence where nothing is."""

import html
import io
import itertools
import json
import re
import shutil
import signal
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
from lenient import lenient
from study_runs import change_config, read_rows, row, summary_of, write_rows, write_run
from untrained import small_config, write_untrained
from watch_recordings import make_recording

from cramerl.cli.main import main
from cramerl.cli.train import describe_run
from cramerl.evidence.curves import read_curves
from cramerl.reports import playing
from cramerl.reports.build import make_report
from cramerl.reports.figures import Figure
from cramerl.reports.playing import Budget, draw_agents, play
from cramerl.runs.agents import Loaded
from cramerl.runs.trainer import Run


def run(*arguments):
    """A command in this process: its status, what it printed and what it complained about."""
    out, err = io.StringIO(), io.StringIO()
    before = signal.getsignal(signal.SIGTERM)
    try:
        with lenient(), redirect_stdout(out), redirect_stderr(err):
            status = main([str(argument) for argument in arguments])
    finally:
        signal.signal(signal.SIGTERM, before)
    return status, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of two runs of u51 in one group, with logs and weights as if they had been trained."""
    folder = tmp_path_factory.mktemp("trained") / "u51"
    write_untrained(folder, *(small_config("u51", steps=600, seed=seed) for seed in (4, 5)))
    write_rows(folder, [row(step, 9.0 + seed, seed=seed) for step in (300, 600) for seed in (4, 5)])
    return folder


RECORDING = make_recording(views=("s51",))


def with_weights(folder, agent, **settings):
    """A run that looks as if its weights had been kept."""
    write_run(folder, agent, **settings)
    (folder / "checkpoints" / "1").mkdir(parents=True)
    (folder / "checkpoints" / "1" / "manifest.json").write_text("{}")


@pytest.fixture(scope="module")
def reported(trained, tmp_path_factory):
    out = tmp_path_factory.mktemp("reported") / "out"
    status, said, err = run("report", trained, "--out", out)
    assert status == 0, err
    return out, said


def test_a_run_plays_and_is_drawn(reported):
    out, said = reported
    page, tables = (out / "report.html").read_text(), (out / "tables.md").read_text()
    assert "<h4>u51 on CartPole-v1</h4>" in page
    assert page.count('<figure class="distributions">') == 1
    for suffix in (".svg", ".png"):
        assert (out / "figures" / f"distributions-u51-CartPole-v1{suffix}").stat().st_size > 1000
    assert "(figures/distributions-u51-CartPole-v1.svg)" in tables
    assert page.index('id="study-0-distributions"') > page.index('id="study-0-table-scores"')
    assert '<details class="fold" id="study-0-distributions">' in page
    assert "Seed 4 after 0 steps of training plays without random actions" in page  # the lower of the two seeds
    assert "Distributions: " not in said  # nothing is missing


def test_every_agent_with_distributions_has_a_figure(tmp_path, monkeypatch):
    """Those whose masses may be negative come first on each game."""
    monkeypatch.setattr(playing, "play", lambda curve, steps: (RECORDING, Loaded(curve.config, None, {})))
    monkeypatch.setattr(
        playing, "draw_distributions", lambda _, name, title, caption: Figure(name, title, caption, None, [])
    )
    for agent, env in itertools.product(("dqn", "c51", "s51"), ("Asterix-MinAtar", "Breakout-MinAtar")):
        with_weights(tmp_path / f"{agent}{env}", agent, env=env)
    figures, sentences = draw_agents(summary_of(tmp_path), Budget())
    games = ("Asterix-MinAtar", "Breakout-MinAtar")
    assert [figure.title for figure in figures] == [f"{agent} on {env}" for env in games for agent in ("s51", "c51")]
    why = "it predicts means, not distributions"
    assert sentences == [f"No figure of dqn on Asterix-MinAtar, dqn on Breakout-MinAtar: {why}."]
    figures, sentences = draw_agents(summary_of(tmp_path), Budget(figures=3))
    assert len(figures) == 3
    assert "No figure of c51 on Breakout-MinAtar: a report has at most 3." in sentences


def test_the_same_weights_give_the_same_bytes(trained, reported, tmp_path):
    assert run("report", trained, "--out", tmp_path / "again")[0] == 0
    for path in (reported[0] / "figures").iterdir():
        assert (tmp_path / "again" / "figures" / path.name).read_bytes() == path.read_bytes()
    assert (tmp_path / "again" / "report.html").read_bytes() == (reported[0] / "report.html").read_bytes()


def test_distributions_are_those_of_the_lane(trained, lenient_jax):
    from cramerl.runs.agents import load_agent
    from cramerl.runs.build import make_envs
    from cramerl.runs.folder import load_config

    for curve in read_curves([trained]):
        recording, _ = play(curve, 5)
        view = recording.views[0]
        envs = make_envs(load_config(trained), 1)
        first = envs.reset(0)
        envs.close()
        _, masses = load_agent(trained, lane=curve.config.seed - 4).distributions(first)
        np.testing.assert_allclose(view.distributions[0], masses[0], atol=1e-5)
        np.testing.assert_allclose(view.distributions @ view.atoms, view.values, atol=1e-3)
        np.testing.assert_allclose(view.distributions.sum(axis=-1), 1, atol=1e-4)


def test_runs_without_weights_get_one_sentence(tmp_path):
    for agent in ("s51", "dqn"):
        write_run(tmp_path / "runs" / agent, agent)
    status, said, _ = run("report", tmp_path / "runs", "--out", tmp_path / "out")
    assert status == 0
    words = "There are no figures because the runs did not keep their weights. The table of diagnostics"
    for text in (said, (tmp_path / "out" / "report.html").read_text(), (tmp_path / "out" / "tables.md").read_text()):
        assert " ".join(text.split()).count(words) == 1
    status, _, err = run("report", tmp_path / "runs", "--out", tmp_path / "out", "--distributions")
    assert status == 2
    assert "distributions can be drawn only of runs that kept their weights" in err
    assert str(tmp_path / "runs") in err


def test_figures_can_be_left_out(trained, tmp_path):
    status, said, _ = run("report", trained, "--out", tmp_path / "out", "--no-distributions")
    assert status == 0
    assert "Distributions" not in (tmp_path / "out" / "report.html").read_text() + said


def damage_weights(folder):
    for file in folder.rglob("state.safetensors"):
        file.write_bytes(file.read_bytes()[:100])


def unknown_environment(folder):
    change_config(folder, env="gym:Nothing-v7")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (damage_weights, "u51/checkpoints holds no usable checkpoint"),
        (unknown_environment, "Nothing"),
    ],
)
def test_a_run_that_cannot_play_gets_a_sentence(trained, tmp_path, spoil, words):
    spoil(shutil.copytree(trained, tmp_path / "runs" / "u51"))
    status, said, err = run("report", tmp_path / "runs", "--out", tmp_path / "out")
    assert (status, err) == (0, "")
    page = (tmp_path / "out" / "report.html").read_text()
    (found,) = re.findall(r"No figure of u51 on [^\n<]*", page)
    assert words in found
    assert str(tmp_path) not in found
    assert html.unescape(found) in " ".join(said.split())
    assert "Learning curves" in page


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    def missing(curve, steps):
        raise ModuleNotFoundError("No module named 'ale_py'", name="ale_py")

    monkeypatch.setattr(playing, "play", missing)
    with_weights(tmp_path / "run", "s51")
    figures, (sentence,) = draw_agents(summary_of(tmp_path), Budget())
    assert figures == []
    assert sentence.endswith(": ale_py is not installed; install it with: pip install 'cramerl[deep]'.")


def test_playing_has_a_limit_of_time(tmp_path):
    with_weights(tmp_path / "run", "s51")
    figures, (sentence,) = draw_agents(summary_of(tmp_path), Budget(seconds=-1))
    assert figures == []
    assert sentence == "No figure of s51 on Breakout-MinAtar: the -1 seconds for figures were used up."


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluated") / "walk"
    assert run("evaluate", "random-walk", "--features", "fourier:3", "--out", folder)[0] == 0
    return folder


def test_an_evaluation_alone_is_a_report(evaluated, tmp_path):
    status, said, err = run("report", evaluated, "--out", tmp_path / "out")
    assert status == 0, err
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h1>Report of 1 evaluated process</h1>" in page
    assert "The vertical line is the mean." in page
    assert "action that was chosen" not in page
    assert "most visited" in (tmp_path / "out" / "tables.md").read_text() or "states shown" in page
    assert (tmp_path / "out" / "figures" / "distributions-walk.svg").exists()
    assert "wrote" in said


def test_evaluations_are_found_beside_runs(evaluated, tmp_path):
    write_run(tmp_path / "all" / "runs" / "a")
    shutil.copytree(evaluated, tmp_path / "all" / "walk")
    file = tmp_path / "all" / "walk" / "evaluation.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"distributions": {}}))
    make_report([tmp_path / "all", evaluated, evaluated], tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Report of 1 run and 1 evaluated process" in page
    assert "No figure of the evaluation in walk: walk/evaluation.json cannot be used" in page


@pytest.mark.parametrize("kept", ["weights", "none"])
def test_training_says_how_to_look_at_it(kept, tmp_path):
    folder = write_run(tmp_path / "run", checkpoints=kept)
    lines = list(describe_run(Run(folder, 1000, True, read_rows(folder)), finished_before=False))
    expected = f"cramerl watch {folder}; with its curve on a page: cramerl report {folder}"
    assert sum(line.endswith(expected) for line in lines) == (kept == "weights")
