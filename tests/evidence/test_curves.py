"""Runs read back as curves: groups, scores, studies, and errors."""

import json
import re
import shutil

import numpy as np
import pytest
from study_runs import change_config, diverging, read_rows, row, write_rows, write_run

from cramerl.evidence.curves import area_under_curve, common_steps, final_score, on_grid, read_curves


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
    assert curve.config.batch_size == 32
    assert curve.source == run.resolve()
    assert (curve.study.name, curve.study.command) == ("study", "")
    assert curve.versions["cramerl"] == "0.0"
    assert curve.protocol.sentence == "MinAtar, the environment's own time limit, epsilon 0.05, training scores"
    assert read_curves([run])[0].study.name == "study"


def test_each_run_of_a_group_has_a_curve(tmp_path):
    write_run(tmp_path / "run", seeds=2, learning_rate=(1e-4, 5e-4), mass_penalty=(0.0, 10.0), seed=3)
    curves = read_curves([tmp_path])
    found = [(c.seed, c.config.learning_rate, c.config.mass_penalty) for c in curves]
    assert sorted(found) == [(s, r, p) for s in (3, 4) for r in (1e-4, 5e-4) for p in (0.0, 10.0)]
    for curve in curves:
        assert len(curve.steps) == 10
        assert curve.learned_with["learning_rate"] == curve.config.learning_rate


def test_a_run_that_diverged_has_no_score(tmp_path):
    diverging(tmp_path / "run")
    good, bad = sorted(read_curves([tmp_path]), key=lambda curve: curve.config.learning_rate)
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


def test_a_run_that_diverged_at_once(tmp_path):
    diverging(tmp_path / "run", at=100)
    bad = max(read_curves([tmp_path]), key=lambda curve: curve.config.learning_rate)
    assert (bad.diverged, bad.last_step, len(bad.steps)) == (True, 100, 1)
    assert [curve.diverged for curve in read_curves([tmp_path], scores="evaluation")] == [False, True]


def test_old_settings_get_the_defaults_of_new_ones(run, tmp_path):
    change_config(run, mass_penalty=None, double_q=None)
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
    for tail in (0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"tail must be in \(0, 1\], got"):
            final_score(curve, tail)


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
    with pytest.raises(ValueError, match=r"metrics.jsonl: charts/episodic_return at step 2000 is not a number: "):
        read_curves([run])


@pytest.mark.parametrize("value", ["NaN", "-1", '"3"', "null"])
def test_a_row_that_does_not_count_its_episodes_is_refused(value, run):
    row = f'{{"step": 2000, "seed": 0, "charts/episodes": {value}, "charts/episodic_return": 1.0}}\n'
    with (run / "metrics.jsonl").open("a") as file:
        file.write(row)
    if value == "null":  # as in logs of another maker
        assert read_curves([run])[0].last_step == 2000
        return
    with pytest.raises(ValueError, match=r"metrics.jsonl: charts/episodes at step 2000 is not a number: "):
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
    sentence = "study/copy and study/run are the same run: s51 on Breakout-MinAtar with seed 0 and the same settings"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_curves([tmp_path])
    change_config(run.with_name("copy"), steps=77, log_steps=5)  # says nothing about what is learned
    with pytest.raises(ValueError, match="are the same run"):
        read_curves([tmp_path])
    change_config(run.with_name("copy"), n_step=3)
    assert len(read_curves([tmp_path])) == 2
    change_config(run.with_name("copy"), n_step=1)
    (run / "metrics.jsonl").write_text("")  # one that never began
    assert len(read_curves([tmp_path])) == 2


def test_runs_of_earlier_versions_can_be_read(run):
    """They listed seeds, rates and penalties in one config, and some settings had other names."""
    change_config(run, lanes=1, learning_rates=[1e-4], mass_penalties=[], base_law="zero", base_distribution=None)
    write_rows(run, [row | {"learning_rate": 1e-4} for row in read_rows(run)])
    (curve,) = read_curves([run])
    assert (curve.config.learning_rate, curve.config.base_distribution, len(curve.steps)) == (1e-4, "zero", 10)


def test_folders_without_runs_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path, words in [
        (tmp_path, "contains no runs made by cramerl train or cramerl sweep"),
        (tmp_path / "nowhere", "nowhere does not exist"),
        (tmp_path / "file", "file is not a folder"),
    ]:
        with pytest.raises(ValueError, match=words):
            read_curves([path])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row(1, 1.0), row(1, 2.0)], "has step 1 twice for seed 0"),
        ([row(1, 1.0, seed="x")], "has a row of seed 'x', but config.json describes no such run"),
    ],
)
def test_logs_that_cannot_be_used(rows, words, run):
    write_rows(run, rows)
    with pytest.raises(ValueError, match=words):
        read_curves([run])


def test_settings_that_cannot_be_used(run):
    change_config(run, max_episode_steps="long")
    with pytest.raises(ValueError, match=r"config.json cannot be used: .*'long'"):
        read_curves([run])
    change_config(run, agent=None)
    with pytest.raises(ValueError, match="it has no agent"):
        read_curves([run])
    (run / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="must contain an object"):
        read_curves([run])
