"""Runs read back as curves: lanes, protocols, scores, and what is refused."""

import json
import re
import shutil

import numpy as np
import pytest
from study_runs import change_config, write_rows, write_run

from cramerl.deep.envs.names import game_name
from cramerl.evidence.curves import area_under_curve, common_steps, final_score, on_grid, read_curves
from cramerl.evidence.exports import dopamine_rows, rliable_scores
from cramerl.evidence.protocols import Protocol
from cramerl.evidence.published import ANCHORS, anchors_for
from cramerl.evidence.scores import summarise
from cramerl.runs.presets import preset


def row(step, value=None, episodes=1, **more):
    found = {"step": step, "frames": step, "seed": 0, "charts/episodes": episodes if value is not None else 0}
    return found | ({} if value is None else {"charts/episodic_return": value}) | more


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "study" / "run")


def test_a_run_is_a_curve(run):
    (curve,) = read_curves([run.parent])
    assert (curve.agent, curve.env, curve.seed) == ("s51", "Breakout-MinAtar", 0)
    assert curve.steps.tolist() == list(range(100, 1001, 100))
    assert curve.episodes.tolist() == [2] * 10
    assert curve.metrics["dist/mass"].tolist() == [1] * 10
    assert not {"step", "frames", "seed"} & set(curve.metrics)
    assert curve.settings["batch_size"] == 32
    assert curve.source == run.resolve()
    assert (curve.study.name, curve.study.command) == ("study", "")
    assert curve.versions["cramerl"] == "0.0"
    assert curve.protocol.sentence == "MinAtar, the environment's own time limit, epsilon 0.05, training scores"
    assert read_curves([run])[0].study.name == "study"


def test_lanes_are_curves_of_their_own(tmp_path):
    write_run(tmp_path / "run", lanes=2, learning_rates=(1e-4, 5e-4), mass_penalties=(0.0, 10.0), seed=3)
    curves = read_curves([tmp_path])
    found = [(c.seed, c.settings["learning_rate"], c.settings["mass_penalty"]) for c in curves]
    assert sorted(found) == [(s, r, p) for s in (3, 4) for r in (1e-4, 5e-4) for p in (0.0, 10.0)]
    for curve in curves:
        assert (curve.settings["lanes"], curve.settings["learning_rates"], curve.settings["mass_penalties"]) == (
            1,
            (),
            (),
        )
        assert len(curve.steps) == 10
        assert curve.learned_with["learning_rate"] == curve.settings["learning_rate"]


def diverging(folder, at=500, **settings):
    """A run of two rates, the second of which is lost."""
    write_run(folder, learning_rates=(5e-4, 1.0), **settings)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [one for one in rows if one["learning_rate"] < 1 or one["step"] < at]
    end = {"step": at, "frames": at, "iteration": 0, "learning_rate": 1.0, "seed": settings.get("seed", 0)}
    write_rows(folder, [*rows, end | {"diverged": True}])


def test_a_lane_that_was_lost_has_no_score(tmp_path):
    diverging(tmp_path / "run")
    good, bad = sorted(read_curves([tmp_path]), key=lambda curve: curve.settings["learning_rate"])
    assert (good.diverged, bad.diverged) == (False, True)
    assert bad.steps.tolist() == [100, 200, 300, 400, 500]
    assert bad.episodes.tolist() == [2, 2, 2, 2, 0]
    assert "diverged" not in bad.metrics
    assert np.isnan(final_score(bad))
    assert np.isnan(final_score(bad, steps=300))
    assert np.isnan(area_under_curve(bad))
    assert np.isfinite(final_score(good))
    assert common_steps([good, bad]) == 1000  # those that go on are not compared at its end
    assert common_steps([bad]) == 0


def test_a_lane_that_was_lost_at_once(tmp_path):
    diverging(tmp_path / "run", at=100)
    bad = max(read_curves([tmp_path]), key=lambda curve: curve.settings["learning_rate"])
    assert (bad.diverged, bad.last_step, len(bad.steps)) == (True, 100, 1)
    assert not any(curve.diverged for curve in read_curves([tmp_path], scores="evaluation"))  # of the first lane only


def test_a_setting_of_which_a_seed_was_lost_is_never_the_best(tmp_path):
    diverging(tmp_path / "study" / "a")
    write_run(tmp_path / "study" / "b", learning_rates=(1.0,), seed=1, level=1e6)
    write_run(tmp_path / "study" / "c", learning_rates=(5e-4,), seed=1)
    (summary,) = summarise(read_curves([tmp_path]))
    (cell,), (lost,) = summary.points, summary.lost
    assert list(summary.cells.values()) == [cell]
    assert (cell.setting("learning_rate"), len(cell.scores), cell.steps, cell.tried) == (5e-4, 2, 1000, 2)
    assert (lost.setting("learning_rate"), lost.diverged, len(lost.curves)) == (1.0, 1, 2)
    assert np.isnan(lost.mean)
    assert summary.swept("learning_rate")
    assert summary.lost_along(lost.series, lost.env, lambda one: one.setting("learning_rate")) == [1.0]
    assert any(
        note.startswith("Diverged, so that there is no score and the setting is not chosen: s51 on Breakout-MinAtar")
        and "learning_rate 1, " in note
        and "(1 of 2 seeds)" in note
        for note in summary.notes
    )
    (tmp_path / "study" / "c" / "metrics.jsonl").unlink()
    rows = [json.loads(line) for line in (tmp_path / "study" / "a" / "metrics.jsonl").read_text().splitlines()]
    write_rows(tmp_path / "study" / "a", [one for one in rows if one["learning_rate"] == 1])
    with pytest.raises(ValueError, match=r"of the steps, no run has one \(1 diverged\)$"):
        summarise(read_curves([tmp_path]))


def test_old_settings_get_the_defaults_of_new_ones(run, tmp_path):
    change_config(run, learning_rates=None, mass_penalties=None, double_q=None)
    write_run(tmp_path / "study" / "other", seed=1)
    first, second = read_curves([tmp_path])
    assert first.learned_with == second.learned_with
    assert "mass_penalty" in first.learned_with
    write_run(tmp_path / "study" / "c51", "c51")
    assert "mass_penalty" not in read_curves([tmp_path / "study" / "c51"])[0].learned_with


def test_scores_by_hand(run):
    write_rows(run, [row(200, 5.0), row(400), row(600, 1.0, 3), row(800, 2.0), row(900, 4.0, 1), row(1000, 7.0, 2)])
    (curve,) = read_curves([run])
    assert final_score(curve) == pytest.approx((4 + 7 * 2) / 3)  # step 800 ends the first four fifths
    assert final_score(curve, 0.4) == pytest.approx((2 + 4 + 14) / 4)
    assert final_score(curve, 1.0) == pytest.approx((5 + 3 + 2 + 4 + 14) / 8)
    assert final_score(curve, steps=600) == pytest.approx(1.0)
    assert np.isnan(final_score(curve, 0.4, steps=400))
    assert area_under_curve(curve) == pytest.approx((5 * 200 + 1 * 400 + 2 * 200 + 4 * 100 + 7 * 100) / 1000)
    assert area_under_curve(curve, 600) == pytest.approx((5 * 200 + 1 * 400) / 600)
    assert np.isnan(area_under_curve(curve, 100))
    assert on_grid(curve, [0, 500, 1000]).tolist() == pytest.approx([5.0, (3 + 2 + 4 + 14) / 7])
    assert on_grid(curve, [0, 200, 400, 600]).tolist() == [5.0, 3.0, 1.0]
    assert np.isnan(on_grid(curve, [1000, 2000])).all()
    for share in (0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"tail must be in \(0, 1\], got"):
            final_score(curve, share)


def test_rows_without_scores(run):
    with (run / "metrics.jsonl").open("w") as file:
        file.write('{"step": 10, "seed": 0, "charts/episodes": 0, "charts/episodic_return": NaN, "x": null}\n')
        file.write('{"step": 20, "seed": 0, "charts/episodes": 0, "x": 3, "word": "a"}\n')
        file.write('{"step": 30, "seed": 0, "charts/episodes": 0, "charts/episodic_return": null}\n')
        file.write('{"step": 40, "seed": 0, "charts/epis')
    (curve,) = read_curves([run])
    assert curve.steps.tolist() == [10, 20, 30]
    assert curve.episodes.tolist() == [0, 0, 0]
    assert np.isnan(curve.returns).all()
    assert np.isnan(final_score(curve))
    assert np.isnan(area_under_curve(curve))
    assert curve.metrics["x"][1] == 3
    assert "word" not in curve.metrics


@pytest.mark.parametrize("value", ["NaN", "Infinity", "null", '"3"', "true", "1" + 400 * "0", None])
def test_a_row_with_episodes_and_no_score_is_refused(value, run):
    score = "" if value is None else f', "charts/episodic_return": {value}'
    with (run / "metrics.jsonl").open("a") as file:
        file.write(f'{{"step": 2000, "seed": 0, "charts/episodes": 2{score}}}\n')
    with pytest.raises(ValueError, match=r"metrics.jsonl has no number as charts/episodic_return at step 2000: "):
        read_curves([run])


@pytest.mark.parametrize("value", ["NaN", "-1", '"3"', "null"])
def test_a_row_that_does_not_count_its_episodes_is_refused(value, run):
    row = f'{{"step": 2000, "seed": 0, "charts/episodes": {value}, "charts/episodic_return": 1.0}}\n'
    with (run / "metrics.jsonl").open("a") as file:
        file.write(row)
    if value == "null":  # as in logs of another maker
        assert read_curves([run])[0].last_step == 2000
        return
    with pytest.raises(ValueError, match=r"metrics.jsonl has no number as charts/episodes at step 2000: "):
        read_curves([run])


@pytest.mark.parametrize("content", ["", None, '{"step": 1'])
def test_a_log_without_rows_is_a_curve_without_rows(content, run):
    (run / "metrics.jsonl").unlink()
    if content is not None:
        (run / "metrics.jsonl").write_text(content)
    (curve,) = read_curves([run])
    assert curve.last_step == 0
    assert np.isnan(final_score(curve))
    assert common_steps([curve]) == 0


def test_evaluations_are_scores_of_another_protocol(run):
    tested = {"step": 1000, "frames": 1000, "iteration": 1, "seed": 0, "eval/episodic_return": 42.0, "eval/episodes": 5}
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(tested) + "\n")
    (training,) = read_curves([run])
    (evaluation,) = read_curves([run], scores="evaluation")
    assert len(training.steps) == 10
    assert evaluation.returns.tolist() == [42.0]
    assert evaluation.episodes.tolist() == [5.0]
    assert evaluation.protocol.sentence.endswith("epsilon 0.001, evaluation scores")
    with pytest.raises(ValueError, match="scores must be training or evaluation, got 'both'"):
        read_curves([run], scores="both")


def test_the_protocol_of_atari(tmp_path):
    write_run(tmp_path / "pong", "c51", "pong")
    write_run(
        tmp_path / "sticky", "c51", "ALE/Pong-v5", sticky=0.25, life_loss_ends=False, noop_max=30, fire_reset=True
    )
    first, second = (read_curves([tmp_path / name])[0] for name in ("pong", "sticky"))
    assert first.frames[-1] == 4000
    assert first.protocol.sentence == (
        "Atari, not sticky, a lost life ends the return, no no-op starts, at most 15,625 steps an episode, "
        "learning from clipped rewards, epsilon 0.05, training scores"
    )
    assert (
        "sticky 0.25, lives do not matter, up to 30 no-ops at the start, fire at the start" in second.protocol.sentence
    )
    assert first.protocol.difference([second.protocol]) == (
        "not sticky, a lost life ends the return, no no-op starts, no fire at the start"
    )
    change_config(tmp_path / "pong", max_episode_steps=0)
    assert read_curves([tmp_path / "pong"])[0].protocol == first.protocol  # the same limit


def test_no_episode_of_atari_outlasts_an_iteration(tmp_path):
    settings = preset("paper", "c51", "pong", num_envs=128).to_json()
    assert Protocol.of(settings, "training").max_episode_steps == 250_000 // 128
    assert Protocol.of(settings, "evaluation").max_episode_steps == 27_000
    assert Protocol.of(settings | {"iteration_steps": 10**7}, "training").max_episode_steps == 27_000


def test_settings_of_atari_mean_nothing_elsewhere(run, tmp_path):
    other = write_run(tmp_path / "other")
    change_config(other, noop_max=30, life_loss_ends=True)  # as older runs may have it
    assert read_curves([run])[0].protocol == read_curves([other])[0].protocol


def test_studies_are_sweeps_or_parents(tmp_path):
    for name in ("a/x", "a/y", "b/deep/x", "b/deeper/still/x"):
        write_run(tmp_path / name, seed=len(name) + (name == "a/y"))
    (tmp_path / "b" / "sweep.json").write_text('{"command": "cramerl sweep c51"}')
    found = {curve.source.relative_to(tmp_path).as_posix(): curve.study for curve in read_curves([tmp_path])}
    assert [found[name].name for name in ("a/x", "a/y", "b/deep/x", "b/deeper/still/x")] == ["a", "a", "b", "b"]
    assert found["b/deep/x"].command == "cramerl sweep c51"
    (inner,) = read_curves([tmp_path / "b" / "deep" / "x"])
    assert inner.study == found["b/deep/x"]


def test_a_run_given_twice_is_read_once(run, tmp_path):
    assert len(read_curves([tmp_path, run, run.parent])) == 1


def test_studies_of_one_name_are_told_apart(tmp_path):
    for name in ("p/study/run", "q/study/run"):
        write_run(tmp_path / name)
    curves = read_curves([tmp_path / "p" / "study", tmp_path / "q" / "study"])
    assert [curve.study.name for curve in curves] == ["study", "study (2)"]


def test_runs_that_are_there_twice_are_refused(run, tmp_path):
    shutil.copytree(run, run.with_name("copy"))
    sentence = "s51 on Breakout-MinAtar with seed 0 is there twice with the same settings, in study/copy and study/run"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_curves([tmp_path])
    change_config(run.with_name("copy"), steps=77, log_steps=5)  # says nothing about what is learned
    with pytest.raises(ValueError, match="is there twice"):
        read_curves([tmp_path])
    change_config(run.with_name("copy"), n_step=3)
    assert len(read_curves([tmp_path])) == 2
    change_config(run.with_name("copy"), n_step=1)
    (run / "metrics.jsonl").write_text("")  # one that never began
    assert len(read_curves([tmp_path])) == 2


def test_folders_without_runs_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path, words in [
        (tmp_path, "RUNS must be folders of runs made by cramerl train or sweep, .* holds none"),
        (tmp_path / "nowhere", "RUNS must be folders, .*nowhere is not there"),
        (tmp_path / "file", "RUNS must be folders, .*file is none"),
    ]:
        with pytest.raises(ValueError, match=words):
            read_curves([path])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row(1, 1.0), row(1, 2.0)], "has step 1 twice for seed 0"),
        ([row(1, 1.0, seed="x")], "has a row whose seed is no number: 'x'"),
    ],
)
def test_logs_that_cannot_be_used(rows, words, run):
    write_rows(run, rows)
    with pytest.raises(ValueError, match=words):
        read_curves([run])


def test_settings_that_cannot_be_used(run):
    change_config(run, sticky=0.0, max_episode_steps="long")
    with pytest.raises(ValueError, match=r"config.json cannot be used: .*'long'"):
        read_curves([run])
    change_config(run, agent=None)
    with pytest.raises(ValueError, match="names no agent"):
        read_curves([run])
    (run / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="must hold an object"):
        read_curves([run])


def test_arrays_for_rliable(tmp_path):
    for agent, env, lanes in [
        ("s51", "Asterix-MinAtar", 3),
        ("s51", "Breakout-MinAtar", 2),
        ("dqn", "Asterix-MinAtar", 2),
    ]:
        write_run(tmp_path / f"{agent}-{env}", agent, env, lanes=lanes)
    curves = read_curves([tmp_path])
    found = rliable_scores(curves)
    assert found.games == ["Asterix-MinAtar"]  # what both have played
    assert found.scores["s51"].shape == (3, 1)
    found = rliable_scores([curve for curve in curves if curve.agent == "s51"], checkpoints=5)
    assert found.games == ["Asterix-MinAtar", "Breakout-MinAtar"]
    assert found.scores["s51"].shape == (2, 2)
    assert found.curves["s51"].shape == (2, 2, 5)
    assert found.seeds["s51"] == [[0, 1], [0, 1]]
    ends = dict.fromkeys(found.games, 500)
    half = rliable_scores([curve for curve in curves if curve.agent == "s51"], steps=ends)
    assert all(steps[-1] == 500 for steps in half.steps.values())
    assert half.scores["s51"][0, 0] == final_score(
        next(one for one in curves if (one.agent, one.env) == ("s51", found.games[0])), steps=500
    )
    for curve in curves:
        if curve.agent == "s51" and curve.seed < 2:
            place = found.games.index(curve.env)
            assert found.scores["s51"][curve.seed, place] == final_score(curve)
            assert found.curves["s51"][curve.seed, place, -1] == pytest.approx(final_score(curve))  # fifths too
    assert found.steps["Asterix-MinAtar"].tolist() == [200, 400, 600, 800, 1000]
    with pytest.raises(ValueError, match="curves must hold one run at least"):
        rliable_scores([])
    with pytest.raises(ValueError, match="checkpoints must be >= 1, got 0"):
        rliable_scores(curves, checkpoints=0)


def test_rows_for_dopamine(run):
    write_rows(
        run, [row(1, 2.0, 1, iteration=0), row(2, 5.0, 2, iteration=0), row(3, iteration=1), row(4, 1.0, iteration=2)]
    )
    found = dopamine_rows(read_curves([run]))
    assert found == {
        "Breakout-MinAtar": [
            {"Iteration": 0, "Value": 4.0, "Agent": "s51"},
            {"Iteration": 2, "Value": 1.0, "Agent": "s51"},
        ]
    }


def test_published_scores_are_those_of_the_table():
    # Corners of the published table, typed in a second time.
    by = {(a.game, a.agent, a.source): a for a in ANCHORS}
    assert len(by) == len(ANCHORS) == 5 * 2 * 3 + 2
    assert by["asterix", "dqn", "Dopamine TF"].scores == {10: 2382, 20: 2899, 25: 3056, 50: 3203, 100: 3222, 200: 2711}
    assert by["space_invaders", "c51", "Dopamine JAX"].scores == {25: 887, 50: 1569, 100: 3615, 200: 7453}
    assert by["seaquest", "c51", "DQN Zoo"].scores == {50: 18418, 100: 88597, 200: 127228}
    assert by["pong", "c51", "CleanRL"].scores == {40: 19.5}
    assert {a.source for a in anchors_for("pong") if not a.sticky} == {"DQN Zoo", "CleanRL"}
    assert by["pong", "c51", "DQN Zoo"].nearest(7e6) == 50
    assert by["pong", "c51", "Dopamine TF"].nearest(80e6) == 100
    assert by["space_invaders", "c51", "Dopamine TF"].scores[by["pong", "c51", "Dopamine TF"].nearest(1e7)] == 686
    assert by["pong", "c51", "Dopamine TF"].protocol == "sticky actions (0.25)"
    assert [game_name(env) for env in ("ALE/SpaceInvaders-v5", "seaquest")] == ["space_invaders", "seaquest"]
