"""Pictures of distributions in `cramerl report`: what is played and drawn, and a sentence where nothing is."""

import html
import io
import json
import re
import shutil
import signal
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
from lenient import lenient
from study_runs import change_config, write_run
from tiny import SMALL, TINY
from watch_recordings import ATOMS, make_recording

from cramerl import plots
from cramerl.cli.main import main
from cramerl.evidence.curves import read_curves
from cramerl.evidence.scores import summarise
from cramerl.report import scenes
from cramerl.report.build import make_report
from cramerl.report.distributions import draw_distributions, moments_of
from cramerl.report.scenes import DistributionPictures, find_evaluations, play


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
    """Runs with weights, and what the first training said: s51; u51 with two lanes; qr."""
    root = tmp_path_factory.mktemp("trained") / "runs"
    said = {}
    for agent, more in (("s51", ()), ("u51", ("--lanes", "2", "--seed", "4")), ("qr", ())):
        status, said[agent], err = run("train", agent, "CartPole-v1", *TINY, *more, "--out", root / agent)
        assert status == 0, err
    return root, said["s51"]


@pytest.fixture(scope="module")
def reported(trained, tmp_path_factory):
    out = tmp_path_factory.mktemp("reported") / "out"
    status, said, err = run("report", trained[0], "--out", out)
    assert status == 0, err
    return out, said


def copied(trained, tmp_path, agent="s51"):
    return shutil.copytree(trained[0] / agent, tmp_path / "runs" / agent)


def test_every_agent_has_a_picture(reported):
    out, said = reported
    page, tables = (out / "report.html").read_text(), (out / "tables.md").read_text()
    order = [page.index(f"<h4>{agent} on CartPole-v1</h4>") for agent in ("s51", "u51", "qr")]
    assert order == sorted(order)
    assert page.count('<figure class="distributions">') == 3
    for agent in ("s51", "u51", "qr"):
        for suffix in (".svg", ".png"):
            assert (out / "figures" / f"distributions-{agent}-CartPole-v1{suffix}").stat().st_size > 1000
        assert f"(figures/distributions-{agent}-CartPole-v1.svg)" in tables
    assert page.index('id="study-0-distributions"') < page.index('id="study-0-table-scores"')
    assert "Seed 4 after 600 steps of training plays without random actions" in page  # the lower of u51's two
    assert "Sticks of equal mass" in page
    assert "Distributions: " not in said  # nothing is missing


def test_the_same_weights_give_the_same_bytes(trained, reported, tmp_path):
    assert run("report", trained[0], "--out", tmp_path / "again")[0] == 0
    for path in (reported[0] / "figures").iterdir():
        assert (tmp_path / "again" / "figures" / path.name).read_bytes() == path.read_bytes()
    assert (tmp_path / "again" / "report.html").read_bytes() == (reported[0] / "report.html").read_bytes()


def test_distributions_are_those_of_the_lane(trained, lenient_jax):
    from cramerl.runs.agents import load_agent
    from cramerl.runs.build import make_envs
    from cramerl.runs.folder import load_config

    for curve in read_curves([trained[0] / "u51"]):
        recording = play(curve, 5)
        view = recording.views[0]
        envs = make_envs(load_config(trained[0] / "u51"), 1)
        first = envs.reset(0)
        envs.close()
        _, masses = load_agent(trained[0] / "u51", lane=curve.seed - 4).distributions(first)
        np.testing.assert_allclose(view.distributions[0], masses[0], atol=1e-5)
        np.testing.assert_allclose(view.distributions @ view.atoms, view.values, atol=1e-3)
        np.testing.assert_allclose(view.distributions.sum(axis=-1), 1, atol=1e-4)


def test_moments_of_an_episode():
    found = moments_of(make_recording(views=("s51",)))
    assert [(one.step, one.why) for one in found] == [(0, "start"), (20, "middle"), (17, "most negative mass")]
    found = moments_of(make_recording(views=("c51",)))
    assert [(one.step, one.why) for one in found] == [(0, "start"), (20, "middle"), (39, "end")]
    (only,) = moments_of(make_recording(steps=1, views=("s51",)))
    assert only.why == "start, middle, most negative mass"


def test_what_is_drawn_is_what_was_recorded(tmp_path):
    recording = make_recording(views=("s51",))
    figure = draw_distributions(recording, "distributions", "a title", "A caption.")
    view = recording.views[0]
    assert figure.caption.startswith("A caption. Most negative mass: ")
    assert f"{view.negative[17]:.2g}, at step 17" in figure.caption
    assert len(figure.panels) == 9
    panel = figure.panels[2 * 3 + int(recording.action[17])]  # the third row
    heading = panel.axes.get_title(loc="left")
    assert heading.splitlines()[0] == f"{recording.actions[recording.action[17]]}, chosen"
    assert heading.splitlines()[1].startswith(f"mean {view.values[17, recording.action[17]]:.2f}")
    assert panel.axes.get_title(loc="right") == f"negative {view.negative[17]:.2f}"
    masses = view.distribution(17, int(recording.action[17]))[1]
    positive, negative = panel.traces
    np.testing.assert_array_equal(np.nan_to_num(positive.middle) + np.nan_to_num(negative.middle), masses)
    (drawn,) = (patch for patch in panel.axes.patches if patch.get_gid().endswith("negative"))
    assert drawn.get_path().vertices[:, 1].min() == pytest.approx(masses.min())
    assert plots.NEGATIVE.lower() in (plots.save_same(figure.drawing, tmp_path / "a.svg")).read_text()


@pytest.mark.parametrize("agent", ["s51", "c51", "qr"])
def test_actions_of_a_moment_have_one_scale_that_holds_them(agent):
    recording = make_recording(views=(agent,))
    panels = draw_distributions(recording, "distributions", "a title", "A caption.").panels
    for row, moment in enumerate(moments_of(recording)):
        masses = [recording.views[0].distribution(moment.step, action)[1] for action in range(3)]
        limits = {panel.axes.get_ylim() for panel in panels[3 * row : 3 * row + 3]}
        ((low, high),) = limits
        assert low < min(np.min(masses), 0)
        assert np.max(masses) < high < 2 * np.max(masses)


def test_of_many_actions_those_taken_are_shown():
    recording = make_recording(views=("s51",))
    view = recording.views[0]
    many = view._replace(
        distributions=np.repeat(view.distributions, 6, axis=1), values=np.repeat(view.values, 6, axis=1)
    )
    names = [f"action {i}" for i in range(18)]
    changed = type(recording)(**(vars(recording) | {"views": [many], "actions": names}))
    figure = draw_distributions(changed, "distributions", "a title", "A caption.")
    assert len(figure.panels) == 3 * 4
    assert "Shown are 4 of 18 actions" in figure.caption
    chosen = [panel for panel in figure.panels if ", chosen" in panel.axes.get_title(loc="left")]
    assert len(chosen) == 3


def test_runs_without_weights_get_one_sentence(tmp_path):
    for agent in ("s51", "dqn"):
        write_run(tmp_path / "runs" / agent, agent)
    status, said, _ = run("report", tmp_path / "runs", "--out", tmp_path / "out")
    assert status == 0
    words = "There are no pictures, for the runs kept no weights to play with: of their distributions the records"
    for text in (said, (tmp_path / "out" / "report.html").read_text(), (tmp_path / "out" / "tables.md").read_text()):
        assert " ".join(text.split()).count(words) == 1
    status, _, err = run("report", tmp_path / "runs", "--out", tmp_path / "out", "--distributions")
    assert status == 2
    assert "--distributions needs runs that kept their weights" in err
    assert str(tmp_path / "runs") in err


def test_pictures_can_be_left_out(trained, tmp_path):
    status, said, _ = run("report", trained[0] / "s51", "--out", tmp_path / "out", "--no-distributions")
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
        (damage_weights, "s51/checkpoints holds no checkpoint that can be used"),
        (unknown_environment, "Nothing"),
    ],
)
def test_a_run_that_cannot_play_gets_a_sentence(trained, tmp_path, spoil, words):
    spoil(copied(trained, tmp_path))
    status, said, err = run("report", tmp_path / "runs", "--out", tmp_path / "out")
    assert (status, err) == (0, "")
    page = (tmp_path / "out" / "report.html").read_text()
    (found,) = re.findall(r"No picture of s51 on [^\n<]*", page)
    assert words in found
    assert str(tmp_path) not in found
    assert html.unescape(found) in " ".join(said.split())
    assert "Learning curves" in page


def test_a_library_that_is_missing_is_named(trained, tmp_path, monkeypatch):
    def missing(curve, steps):
        raise ModuleNotFoundError("No module named 'ale_py'", name="ale_py")

    monkeypatch.setattr(scenes, "play", missing)
    (summary,) = summarise(read_curves([trained[0] / "s51"]))
    figures, sentences = DistributionPictures().of_study(summary)
    assert figures == []
    assert sentences == [
        "No picture of s51 on CartPole-v1: ale_py is not installed, which pip install 'cramerl[deep]' brings."
    ]


@pytest.mark.parametrize(("limit", "words"), [({"most": 0}, "0 at most"), ({"seconds": -1}, "seconds for pictures")])
def test_pictures_have_limits(trained, limit, words):
    (summary,) = summarise(read_curves([trained[0]]))
    figures, (sentence,) = DistributionPictures(**limit).of_study(summary)
    assert figures == []
    assert sentence.startswith("No picture of s51 on CartPole-v1, u51 on CartPole-v1, qr on CartPole-v1: ")
    assert words in sentence


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
    assert "The dashed line is the mean." in page
    assert "action that was chosen" not in page
    assert "most visited" in (tmp_path / "out" / "tables.md").read_text() or "states shown" in page
    assert (tmp_path / "out" / "figures" / "distributions-walk.svg").exists()
    assert "wrote" in said


def test_evaluations_are_found_beside_runs(evaluated, tmp_path):
    write_run(tmp_path / "all" / "runs" / "a")
    shutil.copytree(evaluated, tmp_path / "all" / "walk")
    runs, evaluations = find_evaluations([tmp_path / "all", evaluated])
    assert (runs, evaluations) == ([tmp_path / "all"], [tmp_path / "all" / "walk", evaluated])
    file = tmp_path / "all" / "walk" / "evaluation.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"distributions": {}}))
    make_report(runs, tmp_path / "out", look=DistributionPictures(), evaluations=evaluations)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Report of 1 run and 1 evaluated process" in page
    assert "No picture of the evaluation in walk: walk/evaluation.json cannot be used" in page


def test_training_says_how_to_look_at_it(trained, tmp_path):
    root, said = trained
    (line,) = (line for line in said.splitlines() if "cramerl watch" in line)
    assert line.endswith(f"cramerl watch {root}/s51; with its curve on a page: cramerl report {root}/s51")
    bare = run("train", "dqn", "CartPole-v1", *SMALL, "--checkpoints", "none", "--out", tmp_path / "bare")
    assert "cramerl watch" not in bare[1]


def test_atoms_are_those_of_the_recording():
    (panel, *_) = draw_distributions(make_recording(views=("s51",)), "distributions", "", "").panels
    assert list(panel.traces[0].words) == [f"return {atom:.4g}" for atom in ATOMS]
