"""Settings chosen by an earlier sweep."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from sweep_folders import GAME, asked, diverge, plan, put_run, put_sweep

from cramerl.sweep.choose import best_of, describe
from cramerl.sweep.folder import find_runs, make_plan, write_record
from cramerl.sweep.plan import Sweep, wanted_runs


def rates(out: Path, scores: dict[float, float], agents="s51", **options) -> Sweep:
    """A finished sweep of learning rates, processes with one score each."""
    sweep = asked(agents, "pong", "0-1", axes={"learning_rate": tuple(scores)})
    made = plan(sweep, out)
    for job in made.jobs:
        config = job.group.first
        put_run(out, job.folder, config, score=scores[config.learning_rate] + config.seed)
    write_record(out, made, "cramerl sweep", [], **({"failed": {}} | options))
    return sweep


def test_the_best_rate_is_taken(tmp_path):
    rates(tmp_path / "rates", {1e-4: 3.0, 1e-3: 7.0, 1e-2: 5.0})
    (choice,) = best_of(tmp_path / "rates", ["s51"], ["pong"], [5, 6])
    assert choice.settings == {"learning_rate": 1e-3}
    assert (choice.score, choice.seeds) == (7.5, [0, 1])
    assert describe(choice) == (
        "s51 on pong: learning_rate 0.001, score 7.50 of 2 seeds (learning_rate 0.01 5.50; learning_rate 0.0001 3.50)"
    )
    sweep = asked(envs="pong", seeds="5-6", chosen={("s51", "pong"): choice.settings})
    assert {run.learning_rate for run in wanted_runs(sweep)} == {1e-3}
    json.dumps(choice.to_json(tmp_path))
    # A choice that changes when the first sweep grows does not get mixed in.
    put_sweep(sweep, tmp_path / "final")
    refused = r"learning_rate = 0.001, but .* asks for 0.01: use another folder, or keep both with --allow-variants$"
    with pytest.raises(ValueError, match=refused):
        plan(asked(envs="pong", seeds="7", chosen={("s51", "pong"): {"learning_rate": 1e-2}}), tmp_path / "final")


def test_one_variant_for_all_environments_has_the_best_mean_share_of_the_best_scores(tmp_path):
    # Of the best scores, 1e-4 has 1 and 0.1, 1e-3 has 0.9 and 0.9, 1e-2 has 0.2 and 1.
    scores = {"pong": {1e-4: 100.0, 1e-3: 90.0, 1e-2: 20.0}, "breakout": {1e-4: 1.0, 1e-3: 9.0, 1e-2: 10.0}}
    sweep = asked("s51", "pong,breakout", "0-1", axes={"learning_rate": (1e-4, 1e-3, 1e-2)})
    made = plan(sweep, tmp_path)
    for job in made.jobs:
        config = job.group.first
        put_run(tmp_path, job.folder, config, score=scores[config.env][config.learning_rate])
    write_record(tmp_path, made, "cramerl sweep", [], {})
    envs, seeds = ["pong", "breakout"], [5]
    each = best_of(tmp_path, ["s51"], envs, seeds)
    assert [choice.settings["learning_rate"] for choice in each] == [1e-4, 1e-2]
    both = best_of(tmp_path, ["s51"], envs, seeds, one_for_all=True)
    assert [choice.settings["learning_rate"] for choice in both] == [1e-3, 1e-3]
    assert [choice.score for choice in both] == [90.0, 9.0]
    assert both[1].others == [({"learning_rate": 1e-2}, 10.0), ({"learning_rate": 1e-4}, 1.0)]
    # What cannot be chosen in one environment cannot be chosen.
    lost = next(job.folder for job in made.jobs if job.folder.startswith("pong/") and "0.001" in job.folder)
    write_record(tmp_path, made, "cramerl sweep", [], {lost: "it crashed"})
    both = best_of(tmp_path, ["s51"], envs, seeds, one_for_all=True)
    assert [choice.settings["learning_rate"] for choice in both] == [1e-2, 1e-2]


def test_one_variant_for_all_environments_needs_scores_above_zero(tmp_path):
    rates(tmp_path, {1e-4: -21.0, 1e-3: -20.0})
    with pytest.raises(ValueError, match=r"needs a best score above 0 in each, got -19.50 of s51 on pong"):
        best_of(tmp_path, ["s51"], ["pong"], [5], one_for_all=True)


def test_runs_of_a_group_are_variants_too(tmp_path):
    sweep = asked(axes={"learning_rate": (1e-4, 1e-3)})
    put_sweep(sweep, tmp_path)
    path = tmp_path / find_runs(tmp_path)[0].folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["charts/episodic_return"] = 9.0 if row["learning_rate"] == 1e-4 and row["step"] > 1600 else 5.0
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (choice,) = best_of(tmp_path, ["s51"], [GAME], [2])
    assert (choice.settings, choice.score) == ({"learning_rate": 1e-4}, 9.0)


def test_a_variant_with_a_run_that_diverged_is_not_chosen(tmp_path):
    sweep = asked(axes={"learning_rate": (1e-4, 1e-3)})
    put_sweep(sweep, tmp_path)
    log = tmp_path / find_runs(tmp_path)[0].folder / "metrics.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    for row in rows:
        row["charts/episodic_return"] = 9.0 if row["learning_rate"] == 1e-3 else 5.0
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    diverge(log, {"learning_rate": 1e-3, "seed": 1}, 1900)
    assert plan(sweep, tmp_path).jobs == []
    (choice,) = best_of(tmp_path, ["s51"], [GAME], [2])
    assert (choice.settings, choice.score) == ({"learning_rate": 1e-4}, 5.0)
    assert choice.others == [({"learning_rate": 1e-3}, None)]
    diverge(log, {"learning_rate": 1e-4, "seed": 0}, 100)
    with pytest.raises(ValueError, match=f"^every variant of s51 on {GAME} failed or diverged: there is nothing"):
        best_of(tmp_path, ["s51"], [GAME], [2])


def test_what_an_environment_does_not_use_is_not_chosen_for_it(tmp_path):
    put_sweep(asked("dqn", f"{GAME},pong", "0", axes={"noop_max": (0, 30)}), tmp_path)
    (choice,) = best_of(tmp_path, ["dqn"], [GAME], [5])
    assert choice.settings == {}
    with pytest.raises(
        ValueError,
        match=r"on pong in .* must share one protocol .* \(no no-op starts\) and .* \(up to 30 no-ops at the start\)",
    ):
        best_of(tmp_path, ["dqn"], ["pong"], [5])


def test_nothing_is_chosen_before_all_that_was_planned_is_finished(tmp_path):
    rates(tmp_path, {1e-4: 3.0, 1e-3: 7.0})
    lost = tmp_path / "pong/s51__seed-1__learning-rate-0.001"
    shutil.rmtree(lost)
    with pytest.raises(ValueError, match=rf"{lost} is not finished: nothing can be chosen before it is"):
        best_of(tmp_path, ["s51"], ["pong"], [5])


def test_runs_of_different_length_are_compared_where_the_shortest_ends(tmp_path):
    rates(tmp_path, {1e-4: 3.0, 1e-3: 7.0})
    for seed in (0, 1):
        run = tmp_path / f"pong/s51__seed-{seed}__learning-rate-0.0001"
        (row,) = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][-1:]
        with (run / "metrics.jsonl").open("a") as log:
            late = {"step": 5 * row["step"], "frames": 5 * row["frames"], "charts/episodic_return": 99.0}
            log.write(json.dumps(row | late) + "\n")
        config = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps(config | {"steps": 5 * row["step"]}))
    (choice,) = best_of(tmp_path, ["s51"], ["pong"], [5])
    assert choice.settings == {"learning_rate": 1e-3}


def test_seeds_that_chose_do_not_report(tmp_path):
    rates(tmp_path, {1e-4: 3.0, 1e-3: 7.0})
    with pytest.raises(ValueError, match=r"^seeds must differ from those that chose in .*; got 1 again$"):
        best_of(tmp_path, ["s51"], ["pong"], [1, 2])


def test_a_variant_that_failed_is_not_chosen(tmp_path):
    folder = "pong/s51__seed-1__learning-rate-0.001"
    rates(tmp_path, {1e-4: 3.0, 1e-3: 7.0}, failed={folder: "the loss is not finite"})
    (choice,) = best_of(tmp_path, ["s51"], ["pong"], [5])
    assert choice.settings == {"learning_rate": 1e-4}
    assert choice.others == [({"learning_rate": 1e-3}, None)]
    assert "learning_rate 0.001 failed" in describe(choice)


def without_episodes(out: Path, folder: str) -> None:
    """No episode of this run ends in its last fifth."""
    log = out / folder / "metrics.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    for row in rows:
        row |= {"charts/episodes": 0, "charts/episodic_return": None} if row["step"] > 0.8 * rows[-1]["step"] else {}
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_variant_without_a_score_is_not_chosen(tmp_path):
    """As in a search, where it counts as one that failed."""
    rates(tmp_path, {1e-4: 3.0, 1e-3: 7.0, 1e-2: 5.0})
    without_episodes(tmp_path, "pong/s51__seed-1__learning-rate-0.001")
    (choice,) = best_of(tmp_path, ["s51"], ["pong"], [5])
    assert (choice.settings, choice.score) == ({"learning_rate": 1e-2}, 5.5)
    assert describe(choice) == (
        "s51 on pong: learning_rate 0.01, score 5.50 of 2 seeds (learning_rate 0.0001 3.50; learning_rate 0.001 has no "
        "score: no episode ended in the last fifth of a run)"
    )
    scores = [other["score"] for other in choice.to_json(tmp_path)["others"]]
    assert scores == [3.5, None]
    for rate in ("0.01", "0.0001"):
        without_episodes(tmp_path, f"pong/s51__seed-0__learning-rate-{rate}")
    sentence = (
        "^every variant of s51 on pong failed, diverged or has a run in whose last fifth no episode ended: there is"
    )
    with pytest.raises(ValueError, match=sentence):
        best_of(tmp_path, ["s51"], ["pong"], [5])


def test_nothing_is_chosen_from_what_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r" is not the folder of a sweep: it has no sweep.json"):
        best_of(tmp_path, ["s51"], ["pong"], [5])
    sweep = Sweep(("s51",), ("pong",), (0,))
    (tmp_path / "started").mkdir()
    write_record(tmp_path / "started", make_plan(sweep, tmp_path / "started"), "cramerl sweep", [], {})
    with pytest.raises(ValueError, match=r"started has no run yet: nothing can be chosen from it"):
        best_of(tmp_path / "started", ["s51"], ["pong"], [5])
    rates(tmp_path, {1e-4: 3.0, 1e-3: 7.0})
    with pytest.raises(ValueError, match="has no run of c51 on pong to choose from"):
        best_of(tmp_path, ["s51", "c51"], ["pong"], [5])
    log = tmp_path / "pong/s51__seed-1__learning-rate-0.001/metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match="is not finished: nothing can be chosen before it is"):
        best_of(tmp_path, ["s51"], ["pong"], [5])
