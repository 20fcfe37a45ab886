"""Search over settings: what is tried follows from what was found, and from nothing else."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path

import pytest

from cramerl.cli.main import main as cli
from cramerl.runs.presets import preset
from cramerl.sweep.choose import best_of
from cramerl.sweep.folder import make_plan, read_record, write_record
from cramerl.sweep.plan import Sweep, wanted_runs
from cramerl.sweep.search import Range, Search

pytest.importorskip("optuna")

SPACE = {"learning_rate": Range(1e-5, 1e-1, integer=False), "n_step": (1, 3, 5)}
ASKED = Sweep(("dqn",), ("CartPole-v1",), (0, 1), changes={"steps": 1000}, preset="smoke", max_lanes=1)
PLACE = ("dqn", "CartPole-v1")


def score(rate: float, n_step: int) -> float:
    """Best at a rate of 1e-3 and three steps."""
    return 100 - 10 * abs(math.log10(rate) + 3) - 5 * abs(n_step - 3)


def train(out: Path, sweep: Sweep) -> None:
    """Every run that a sweep has not yet, with the score of its settings and a little of its seed."""
    plan = make_plan(sweep, out)
    for job in plan.jobs:
        config = job.group.first
        row = {"step": 1000, "frames": 1000, "iteration": 0, "seed": config.seed, "charts/epsilon": 0.1}
        row |= {
            "charts/episodes": 2,
            "charts/episodic_return": score(config.learning_rate, config.n_step) + config.seed,
        }
        (out / job.folder).mkdir(parents=True)
        (out / job.folder / "config.json").write_text(json.dumps(config.to_json()))
        (out / job.folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    write_record(out, plan, "cramerl sweep", [], {})


def search(out: Path, trials: int = 24, **options) -> Search:
    return Search(out, SPACE, ASKED, **({"trials": trials, "batch": 4, "seed": 0} | options))


def run(out: Path, trials: int = 24, **options) -> Search:
    out.mkdir(exist_ok=True)
    made = search(out, trials, **options)
    train(out, made.sweep())
    while made.ask():
        train(out, made.sweep())
    return made


def test_more_trials_than_before_are_other_ones(tmp_path):
    """Also in the middle of a batch."""
    for trials in (1, 2, 4):
        tried = run(tmp_path / "found", trials).tried[PLACE]
    assert len({trial["learning_rate"] for trial in tried}) == 4


def test_it_finds_what_is_best_and_best_of_takes_it(tmp_path):
    made = run(tmp_path / "found", 40)
    trials, scores = made.tried[PLACE], [-math.inf if score is None else score for score in made.scores(PLACE)]
    assert len(trials) == 40
    assert scores[0] == pytest.approx(score(**rename(trials[0])) + 0.5)
    # Evenly scattered trials of four decades and three values have a mean of 85.
    assert sum(scores[:10]) / 10 < sum(scores[-10:]) / 10 > 90
    (choice,) = best_of(tmp_path / "found", ["dqn"], ["CartPole-v1"], [5])
    best = max(range(40), key=scores.__getitem__)
    assert choice.settings == trials[best]
    assert choice.score == scores[best]
    assert set(read_record(tmp_path / "found")["axes"]) == set(SPACE)


def rename(settings: dict[str, float]) -> dict[str, float]:
    return {"rate": settings["learning_rate"], "n_step": settings["n_step"]}


def test_killed_and_continued_it_tries_the_same(tmp_path, monkeypatch):
    whole = run(tmp_path / "whole", 12).tried
    run(tmp_path / "parts", 4)
    # Killed in the middle of a batch, before anything was trained.
    import optuna

    asks, ask = [0], optuna.study.Study.ask

    def killed(study, *words):
        asks[0] += 1
        if asks[0] == 3:
            raise KeyboardInterrupt
        return ask(study, *words)

    monkeypatch.setattr(optuna.study.Study, "ask", killed)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "parts", 12).ask()
    parts = run(tmp_path / "parts", 12)
    assert parts.tried == whole
    assert run(tmp_path / "parts", 12).tried == whole
    assert run(tmp_path / "other", 12, seed=1).tried != whole
    with pytest.raises(ValueError, match=r"search\.log: batch was 4 and is now 3; use another folder$"):
        search(tmp_path / "parts", batch=3)


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_a_record_that_is_not_in_the_folder(tmp_path, kind):
    """Optuna would append to what a link points to, and wait for a pipe."""
    (tmp_path / "outside").write_text("mine")
    (tmp_path / "sweep").mkdir()
    record = tmp_path / "sweep/search.log"
    if kind == "pipe":
        os.mkfifo(record)
    else:
        (record.symlink_to if kind == "link" else record.hardlink_to)(tmp_path / "outside")
    with pytest.raises(ValueError, match=r"search\.log (is a link|has 2 names|must be a regular file)"):
        search(tmp_path / "sweep")
    assert (tmp_path / "outside").read_text() == "mine"


@pytest.mark.parametrize("line", ["[1]", '{"op_code": 99}', '{"op_code": 4, "worker_id": "x"}', "[" * 100_000, "{"])
def test_a_record_that_was_changed(tmp_path, line):
    (tmp_path / "search.log").write_text(f"{line}\n" * 2)
    with pytest.raises(ValueError, match=r"search\.log cannot be used: it is no record of a search"):
        search(tmp_path)


def test_runs_that_differ_in_what_is_not_searched_do_not_count(tmp_path):
    """An earlier sweep varied two settings; a search over one of them, the other fixed, finds its own runs done."""
    # What dqn has no use for must not hide its runs either.
    changes = {"steps": 1000, "mass_penalty": 2.0}
    rates = {"learning_rate": (1e-4, 1e-3)}
    asked = dataclasses.replace(ASKED, agents=("dqn", "s51"), changes=changes)
    train(tmp_path, dataclasses.replace(asked, axes={"n_step": (1, 3), **rates}))
    made = Search(
        tmp_path, rates, dataclasses.replace(asked, changes=changes | {"n_step": 1}), trials=2, batch=2, seed=0
    )
    assert make_plan(made.sweep(), tmp_path).jobs == []
    for place, trials in made.tried.items():
        assert made.scores(place) == pytest.approx([score(trial["learning_rate"], 1) + 0.5 for trial in trials])
        assert len(trials) == 2


def test_other_settings_need_another_folder(tmp_path):
    """Neither several values of what is not searched, nor --allow-variants, would be taken."""
    made = run(tmp_path, 2)
    other = Search(tmp_path, SPACE, dataclasses.replace(ASKED, changes={"discount": 0.9}), trials=2, batch=4, seed=0)
    assert other.tried == made.tried
    with pytest.raises(ValueError, match=r"discount = 0\.99, but this sweep asks for 0\.9: use another folder$"):
        make_plan(other.sweep(), tmp_path)


def test_what_fails_is_not_sought(tmp_path, monkeypatch):
    """A trial that failed counts as the worst; later trials stay away from where they fail."""
    space = {"learning_rate": Range(1e-6, 1.0, integer=False)}
    made = Search(tmp_path, space, ASKED, trials=30, batch=1, seed=0)
    monkeypatch.setattr(made, "scores", lambda place: [scored(t["learning_rate"]) for t in made.tried[place]])

    def scored(rate: float) -> float | None:
        return None if rate > 1e-4 else -abs(math.log10(rate) + 5)

    while made.ask():
        pass
    rates = [trial["learning_rate"] for trial in made.tried[PLACE]]
    assert sum(rate > 1e-4 for rate in rates[-15:]) < sum(rate > 1e-4 for rate in rates[:15]) - 3
    assert all(rate == float(f"{rate:.3g}") for rate in rates)


@pytest.mark.parametrize(
    ("low", "high", "digits"),
    [(0.999, 0.9999, 6), (0.9, 0.9999, 4), (0.0, 1.0, 3), (100.1, 100.2, 4), (-2e6, 3e6, -4)],
)
def test_a_narrow_range_is_searched_in_steps_of_a_thousandth_of_its_width(low, high, digits):
    span = Range(low, high, integer=False)
    tried = [span.rounded(low + (high - low) * part) for part in (0, 0.123456, 0.5, 0.777777, 1)]
    assert all(low <= value <= high and value == round(value, digits) for value in tried)
    assert len(set(tried)) == 5
    assert not span.log


def test_a_range_of_factors_is_searched_in_three_digits():
    span = Range(1.23456e-5, 1.0, integer=False)
    assert span.log
    assert [span.rounded(value) for value in (1.23456e-5, 1.23456e-3, 0.99999)] == [1.23456e-5, 1.23e-3, 1.0]
    assert Range(1, 5, integer=True).rounded(3) == 3


def test_settings_go_to_the_agents_that_use_them(tmp_path):
    space = {"mass_penalty": (1.0, 10.0), "n_step": Range(1, 5, integer=True)}
    made = Search(tmp_path, space, Sweep(("dqn", "s51"), ("pong",), (0,)), trials=2, batch=2, seed=0)
    assert {place: set(trials[0]) for place, trials in made.tried.items()} == {
        ("dqn", "pong"): {"n_step"},
        ("s51", "pong"): {"mass_penalty", "n_step"},
    }
    assert all(isinstance(trial["n_step"], int) for trials in made.tried.values() for trial in trials)
    runs = make_plan(made.sweep(), tmp_path)
    assert 3 <= len(runs.jobs) <= 4
    assert preset(None, "dqn", "pong").n_step == 1


def test_settings_go_to_the_environments_that_use_them(tmp_path):
    asked = Sweep(("dqn",), ("pong", "CartPole-v1"), (0,), changes={"noop_max": 7}, preset="smoke")
    space = {"learning_rate": (1e-3, 1e-4), "fire_reset": (False, True)}
    made = Search(tmp_path, space, asked, trials=3, batch=3, seed=0)
    tried = {run.env: run for run in wanted_runs(made.sweep())}
    assert (tried["pong"].noop_max, tried["CartPole-v1"].noop_max) == (7, 0)
    assert [{name for trial in trials for name in trial} for trials in made.tried.values()] == [
        {"learning_rate", "fire_reset"},
        {"learning_rate"},
    ]
    assert made.scores(("dqn", "CartPole-v1")) == [None] * 3


def test_an_agent_without_what_is_searched_does_not_hurry_the_others(tmp_path):
    """It is run as it is; the others' second batch waits for the scores of the first."""
    space, places = {"mass_penalty": (1.0, 10.0)}, [("dqn", "pong"), ("s51", "pong")]
    made = Search(tmp_path, space, Sweep(("dqn", "s51"), ("pong",), (0,)), trials=6, batch=2, seed=0)
    variants = made.sweep().variants
    assert {place: len(trials) for place, trials in variants.items()} == {places[0]: 1, places[1]: 2}
    assert (variants[places[0]], made.left) == ([{}], 4)


def test_a_dry_run_shows_what_is_tried_first(tmp_path, capfd):
    out, env = tmp_path / "out", "gym:CartPole-v1"
    words = ["sweep", str(out), "--agents", "dqn", "--envs", env, "--seeds", "0", "--preset", "smoke"]
    words += ["--search", "optuna", "--learning-rate", "1e-5..1e-1", "--n-step", "1,3,5", "--batch", "3", "--dry-run"]

    def said(*more: str) -> list[str]:
        assert cli([*words, *more]) == 0
        return capfd.readouterr().out.splitlines()

    lines = said("--trials", "8")
    assert lines[:2] == [
        f"3 jobs in {out}: 0 done, 3 to do",
        "trials chosen by the search: 3 of 8; their scores will choose the next",
    ]
    assert not out.exists()
    # The search itself starts with the same trials, and then the dry run says what is left of them.
    out.mkdir()
    space = {name: SPACE[name] for name in ("n_step", "learning_rate")}  # in the order of the command line
    made = Search(out, space, Sweep(("dqn",), (env,), (0,), preset="smoke"), trials=8, batch=3, seed=0)
    jobs = make_plan(made.sweep(), out).jobs
    assert lines[2:] == [f"{out / job.folder}: 1 run, 2,000 steps, new" for job in jobs]
    assert said("--trials", "8") == lines
    assert said("--trials", "3")[1] == "trials chosen by the search: 3"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--trials", "3"], "--trials is used only with --search: leave it out"),
        (
            ["--search", "optuna"],
            "--search needs a range such as --learning-rate 1e-5..1e-3, or a setting with several",
        ),
        (["--search", "optuna", "--n-step", "5..1"], "n_step must be a range LOW..HIGH with LOW < HIGH"),
        (
            ["--agents", "c51", "--search", "optuna", "--v-min=-1e308..1e308"],
            "v_min must be a range LOW..HIGH with LOW < HIGH and a finite width, got",
        ),
        (["--search", "optuna", "--n-step", "0..5"], "n_step must be"),
        (["--search", "optuna", "--steps", "1..5"], "steps must have one value in a sweep, got 1,5"),
        (["--search", "optuna", "--n-step", "1,2", "--best-of", "x"], "one sweep searches, another reports"),
        (["--search", "optuna", "--n-step", "1,2", "--allow-variants"], "--search and --allow-variants must not be"),
    ],
)
def test_bad_input(words, sentence, tmp_path, capfd):
    asked = ["--agents", "dqn", "--envs", "CartPole-v1", "--seeds", "0", "--preset", "smoke"]
    assert cli(["sweep", str(tmp_path / "out"), *asked, *words]) == 2
    assert sentence in capfd.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())
