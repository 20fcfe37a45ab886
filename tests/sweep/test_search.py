"""Search over settings: what is tried follows from what was found, and from nothing else."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import pytest

from cramerl.cli.main import main as cli
from cramerl.runs.presets import preset
from cramerl.sweep.choose import best_of
from cramerl.sweep.folder import make_plan, read_record, write_record
from cramerl.sweep.plan import Sweep, wanted_runs
from cramerl.sweep.search import Range, Search, suggest

pytest.importorskip("optuna")

SPACE = {"learning_rate": Range(1e-5, 1e-1, whole=False), "n_step": (1, 3, 5)}
ASKED = Sweep(("dqn",), ("CartPole-v1",), (0, 1), changes={"steps": 1000}, preset="smoke")
PLACE = ("dqn", "CartPole-v1")


def score(rate: float, n_step: int) -> float:
    """Best at a rate of 1e-3 and three steps."""
    return 100 - 10 * abs(math.log10(rate) + 3) - 5 * abs(n_step - 3)


def train(out: Path, sweep: Sweep) -> None:
    """Every run that a sweep has not yet, with the score of its settings and a little of its seed."""
    plan = make_plan(sweep, out, lambda env: False)
    for cell in plan.cells:
        if (out / cell.folder).exists():
            continue
        config, path = dataclasses.replace(cell.config, steps=1000), out / cell.folder
        path.mkdir(parents=True)
        (path / "config.json").write_text(json.dumps(config.to_json()))
        good = score(config.learning_rate, config.n_step) + config.seed
        row = {"step": 1000, "frames": 1000, "iteration": 0, "seed": config.seed, "charts/epsilon": 0.1}
        (path / "metrics.jsonl").write_text(
            json.dumps(row | {"charts/episodes": 2, "charts/episodic_return": good}) + "\n"
        )
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
    # Evenly scattered trials of four decades and three values come to 85 in the mean.
    assert sum(scores[:10]) / 10 < sum(scores[-10:]) / 10 > 92
    (choice,) = best_of(tmp_path / "found", ["dqn"], ["CartPole-v1"], [5])
    best = max(range(40), key=scores.__getitem__)
    assert choice.settings == trials[best]
    assert choice.score == scores[best]
    assert set(read_record(tmp_path / "found")["axes"]) == set(SPACE)


def rename(settings: dict[str, float]) -> dict[str, float]:
    return {"rate": settings["learning_rate"], "n_step": settings["n_step"]}


def test_stopped_and_gone_on_with_it_tries_the_same(tmp_path):
    whole = run(tmp_path / "whole", 12).tried
    run(tmp_path / "parts", 4)
    # Asked for and then killed before anything was trained.
    assert search(tmp_path / "parts", 12).ask()
    parts = run(tmp_path / "parts", 12)
    assert parts.tried == whole
    assert run(tmp_path / "parts", 12).tried == whole
    assert run(tmp_path / "other", 12, seed=1).tried != whole
    sentence = "search.json cannot be used: batch was 4, and now is 3; take another folder"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        search(tmp_path / "parts", batch=3)


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
    assert make_plan(made.sweep(), tmp_path, lambda env: False).jobs == []
    for place, trials in made.tried.items():
        assert made.scores(place) == pytest.approx([score(trial["learning_rate"], 1) + 0.5 for trial in trials])
        assert len(trials) == 2


def test_other_settings_need_another_folder(tmp_path):
    """Neither several values of what is not searched, nor --allow-variants, would be taken."""
    made = run(tmp_path, 2)
    other = Search(tmp_path, SPACE, dataclasses.replace(ASKED, changes={"discount": 0.9}), trials=2, batch=4, seed=0)
    assert other.tried == made.tried
    with pytest.raises(ValueError, match=r"discount = 0\.99, and this sweep asks for 0\.9: take another folder$"):
        make_plan(other.sweep(), tmp_path, lambda env: False)


def test_what_fails_is_not_sought():
    """A trial that failed counts as the worst; later ones stay away from where they fail."""
    space, history = {"learning_rate": Range(0.0, 1.0, whole=False)}, []
    assert not space["learning_rate"].log
    for number in range(30):
        (settings,) = suggest(space, history, 1, [0, number])
        rate = settings["learning_rate"]
        history.append((settings, None if rate > 0.5 else -abs(rate - 0.2)))
    tried = [settings["learning_rate"] for settings, _ in history]
    assert sum(rate > 0.5 for rate in tried[-15:]) < sum(rate > 0.5 for rate in tried[:15])
    assert all(rate == float(f"{rate:.3g}") for rate in tried)


@pytest.mark.parametrize(
    ("low", "high", "digits"),
    [(0.999, 0.9999, 6), (0.9, 0.9999, 4), (0.0, 1.0, 3), (100.1, 100.2, 4), (-2e6, 3e6, -4)],
)
def test_a_narrow_range_is_searched_inside(low, high, digits):
    """In steps of about a thousandth of its width, as short as these are."""
    span = Range(low, high, whole=False)
    tried = [trial["discount"] for trial in suggest({"discount": span}, [], 8, [0, 0])]
    assert tried == [trial["discount"] for trial in suggest({"discount": span}, [], 8, [0, 0])]
    assert all(low <= value <= high and value == round(value, digits) for value in tried)
    assert len(set(tried)) == 8
    assert {type(value) for value in tried} == {float}


def test_a_range_of_factors_is_searched_in_three_digits():
    tried = [trial["rate"] for trial in suggest({"rate": Range(1.23456e-5, 1.0, whole=False)}, [], 50, [0, 0])]
    assert len(set(tried)) > 45
    assert all(value == float(f"{value:.3g}") or value == 1.23456e-5 for value in tried)


def test_a_search_whose_trials_were_rounded_otherwise_goes_on(tmp_path):
    """What was tried is read, not computed again."""
    space, tried = {"discount": Range(0.999, 0.9999, whole=False)}, [{"discount": 0.999}, {"discount": 0.9999}]
    made = Search(tmp_path, space, ASKED, trials=2, batch=2, seed=0)
    made.sweep()
    content = json.loads((tmp_path / "search.json").read_text())
    content["searches"][0]["trials"] = tried
    (tmp_path / "search.json").write_text(json.dumps(content))
    made = Search(tmp_path, space, ASKED, trials=4, batch=2, seed=0)
    train(tmp_path, made.sweep())
    assert None not in made.scores(PLACE)
    assert made.ask()
    assert made.tried[PLACE][:2] == (*tried,)
    assert len({trial["discount"] for trial in made.tried[PLACE]}) == 4


def test_settings_go_to_the_agents_that_have_them(tmp_path):
    space = {"mass_penalty": (1.0, 10.0), "n_step": Range(1, 5, whole=True)}
    made = Search(tmp_path, space, Sweep(("dqn", "s51"), ("pong",), (0,)), trials=2, batch=2, seed=0)
    assert made.ask()
    assert {place: set(trials[0]) for place, trials in made.tried.items()} == {
        ("dqn", "pong"): {"n_step"},
        ("s51", "pong"): {"mass_penalty", "n_step"},
    }
    assert all(isinstance(trial["n_step"], int) for trials in made.tried.values() for trial in trials)
    runs = make_plan(made.sweep(), tmp_path, lambda env: False)
    assert 3 <= len(runs.cells) <= 4
    assert preset(None, "dqn", "pong").n_step == 1


def test_settings_go_to_the_environments_that_heed_them(tmp_path):
    asked = Sweep(("dqn",), ("pong", "CartPole-v1"), (0,), changes={"noop_max": 7}, preset="smoke")
    space = {"learning_rate": (1e-3, 1e-4), "sticky": (0.0, 0.25)}
    made = Search(tmp_path, space, asked, trials=3, batch=3, seed=0)
    tried = {run.env: run for run in wanted_runs(made.sweep())}
    assert (tried["pong"].noop_max, tried["CartPole-v1"].noop_max) == (7, 0)
    assert [{name for trial in trials for name in trial} for trials in made.tried.values()] == [
        {"learning_rate", "sticky"},
        {"learning_rate"},
    ]
    assert made.scores(("dqn", "CartPole-v1")) == [None] * 3


def test_an_agent_without_what_is_searched_does_not_hurry_the_others(tmp_path):
    """It is run as it is; the others' second batch waits for the scores of the first."""
    space, places = {"mass_penalty": (1.0, 10.0)}, [("dqn", "pong"), ("s51", "pong")]
    made = Search(tmp_path, space, Sweep(("dqn", "s51"), ("pong",), (0,)), trials=6, batch=2, seed=0)
    made.sweep()
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
    assert lines[0] == f"# 3 cells in {out}: 0 done, 3 to do"
    assert lines[1] == "# 3 of 8 trials of the search are chosen; the scores of these will choose the next"
    assert not out.exists()
    # The search itself begins with the same, and then the dry run says what is left of them.
    out.mkdir()
    space = {name: SPACE[name] for name in ("n_step", "learning_rate")}  # as the command line has them
    asked = Sweep(("dqn",), (env,), (0,), preset="smoke")
    made = Search(out, space, asked, trials=8, batch=3, seed=0)
    assert lines[2:] == [
        f"cramerl {' '.join(job.arguments)}" for job in make_plan(made.sweep(), out, lambda _: False).jobs
    ]
    assert said("--trials", "8") == lines
    assert said("--trials", "3")[1] == "# all 3 trials of the search are chosen"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--trials", "3"], "--trials belongs to --search and would be ignored here: leave it out"),
        (["--learning-rate", "1e-4..1e-2"], "or a range for --search optuna, got '1e-4..1e-2'"),
        (["--learning-rates", "1e-4..1e-2"], "or a range for --search optuna, got '1e-4..1e-2'"),
        (
            ["--agents", "s51", "--mass-penalties", "1..3"],
            "mass_penalty must be values with commas between, or a range",
        ),
        (
            ["--search", "optuna"],
            "--search needs a range such as --learning-rate 1e-5..1e-3, or a setting with several",
        ),
        (["--search", "optuna", "--n-step", "5..1"], "n_step must be a range LOW..HIGH with LOW < HIGH, got '5..1'"),
        (
            ["--agents", "c51", "--search", "optuna", "--v-min=-1e308..1e308"],
            "v_min must be a range whose width is a number, got",
        ),
        (["--search", "optuna", "--n-step", "0..5"], "n_step must be"),
        (["--search", "optuna", "--steps", "1..5"], "steps must have one value in a sweep, got 1,5"),
        (["--search", "optuna", "--n-step", "1,2", "--best-of", "x"], "one sweep chooses, another one reports"),
        (["--search", "optuna", "--n-step", "1,2", "--allow-variants"], "trials are told apart by what is searched"),
    ],
)
def test_bad_input(words, sentence, tmp_path, capfd):
    asked = ["--agents", "dqn", "--envs", "CartPole-v1", "--seeds", "0", "--preset", "smoke"]
    assert cli(["sweep", str(tmp_path / "out"), *asked, *words]) == 2
    assert sentence in capfd.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())
