"""Sweeps: what a command comes to, what is done again and what is not, and processes that end when they should."""

from __future__ import annotations

import dataclasses
import fcntl
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from study_runs import write_rows, write_run

from cramerl.cli import sweep as cli_sweep
from cramerl.cli.main import _parse as parse
from cramerl.runs.config import ONLY_FOR, TrainConfig
from cramerl.runs.presets import preset
from cramerl.sweep.choose import best_of, describe
from cramerl.sweep.display import sweep_display
from cramerl.sweep.execute import LocalProcesses, State, child_environment, default_slots, execute, log_file
from cramerl.sweep.folder import Job, locked, look_at, make_plan, read_record, survey, write_record
from cramerl.sweep.plan import (
    AXES,
    Sweep,
    cells_of,
    identity,
    parse_seeds,
    train_arguments,
    wanted_runs,
)

TINY = ["--preset", "smoke", "--hidden-units", "8", "--num-atoms", "11"]
GAME = "Breakout-MinAtar"


def native(env: str) -> bool:
    return env.endswith("-MinAtar") or env == "CartPole-v1"


def asked(agents="s51", envs=GAME, seeds="0-1", **options) -> Sweep:
    return Sweep(tuple(agents.split(",")), tuple(envs.split(",")), parse_seeds(seeds), preset="smoke", **options)


def plan(sweep: Sweep, out: Path):
    return make_plan(sweep, out, native)


def put_run(out: Path, folder: str, config: TrainConfig, step: int | None = None, *, score=1.0, checkpoint=True):
    """A run as `cramerl train` leaves it, with one line for each lane and each hundred steps."""
    path = out / folder
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config.to_json()))
    step = config.steps if step is None else step
    rows = [
        {
            "step": at,
            "frames": (4 if config.env == "pong" else 1) * at,
            "iteration": 0,
            **lane,
            "charts/epsilon": 0.1,
            "charts/episodes": 2,
        }
        | {"charts/episodic_return": score}
        for at in range(100, step + 1, 100)
        for lane in config.lane_settings
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if checkpoint:
        (path / "checkpoints" / "000001").mkdir(parents=True)
        (path / "checkpoints" / "000001" / "manifest.json").write_text("{}")
    return path


def put_plan(sweep: Sweep, out: Path, **options):
    """Every cell of a sweep, finished."""
    made = plan(sweep, out)
    for cell in made.cells:
        put_run(out, cell.folder, cell.config, **options)
    write_record(out, made, "cramerl sweep", [], {})
    return made


# --- what a sweep consists of


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "0-", "1.5", "0,,1", "0-99999999", str(2**31), "٣"])
def test_seeds_that_are_none(text):
    with pytest.raises(ValueError, match=f"^seeds must be .*got '{re.escape(text)}'$"):
        parse_seeds(text)


def test_lanes_where_the_environment_is_a_program_and_processes_elsewhere():
    sweep = asked("dqn,s51", f"{GAME},pong", axes={"learning_rate": (1e-4, 1e-3), "mass_penalty": (1.0, 10.0)})
    cells = cells_of(wanted_runs(sweep), native, ["learning_rate", "mass_penalty"])
    of_game = {cell.folder: cell.config for cell in cells if cell.config.env == GAME}
    assert list(of_game) == [
        f"{GAME}/dqn__seeds-0-1__learning-rate-0.0001_0.001",
        f"{GAME}/s51__seeds-0-1__learning-rate-0.0001_0.001__mass-penalty-1_10",
    ]
    assert [len(config.lane_settings) for config in of_game.values()] == [4, 8]
    others = [cell for cell in cells if cell.config.env == "pong"]
    assert len(others) == 2 * (2 + 4)
    assert others[0].folder == "pong/dqn__seed-0__learning-rate-0.0001"
    assert all(len(cell.config.lane_settings) == 1 for cell in others)
    # Every part of a sweep is a comparison: all of seed 0 before anything of seed 1.
    assert [cell.config.seed for cell in others] == sorted(cell.config.seed for cell in others)


@pytest.mark.parametrize("seed", range(10))
def test_cells_hold_every_run_once(seed, rng):
    """Whatever is missing, and however few lanes a program may have."""
    axes = {
        "learning_rate": (1e-4, 1e-3, 1e-2),
        "mass_penalty": (0.0, 1.0),
        "mass_penalty_scale": ("total", "orthonormal"),
    }
    runs = wanted_runs(asked("s51,dqn", f"{GAME},pong", "0-3,7", axes=axes))
    # A penalty of zero is the same on both scales.
    assert len(runs) == 2 * 5 * (3 * 3 + 3)
    keep = [run for run, kept in zip(runs, rng.random(len(runs)) < (seed + 1) / 10, strict=True) if kept]
    most = 1 + seed if seed % 2 else 4096
    cells = cells_of(keep, native, list(axes), most)
    held = [identity(run) for cell in cells for run in cell.config.single_runs()]
    assert len(held) == len(set(held))
    assert set(held) == {identity(run) for run in keep}
    assert len({cell.folder for cell in cells}) == len(cells)
    assert all(len(cell.config.lane_settings) <= most for cell in cells)


def test_few_cells_for_what_is_added():
    rates = {"learning_rate": (1e-4, 1e-3)}
    there = {identity(run) for run in wanted_runs(asked(axes=rates))}
    more = wanted_runs(asked(seeds="0-4", axes={"learning_rate": (1e-4, 1e-3, 1e-2)}))
    cells = cells_of([run for run in more if identity(run) not in there], native, ["learning_rate"])
    assert [cell.folder.partition("__")[2] for cell in cells] == [
        "seeds-0-1__learning-rate-0.01",
        "seeds-2-4__learning-rate-0.0001_0.001_0.01",
    ]


def test_a_command_is_whole(tmp_path):
    """The flags of a cell give its settings back."""
    from cramerl.cli.train import read_settings

    axes = {"v_min": (-10.0, -2.5), "learning_rate": (1e-4, 3e-3), "double_q": (True, False)}
    sweep = asked("s51,qr", axes=axes, changes={"hidden_units": (3, 4), "optimiser_epsilon": 1e-7})
    for cell in cells_of(wanted_runs(sweep), native, list(axes)):
        words = train_arguments(cell.config, tmp_path / "out")
        config = read_settings(parse(words))
        assert {identity(run) for run in config.single_runs()} == {identity(run) for run in cell.config.single_runs()}
        assert config.steps == cell.config.steps


def test_settings_go_to_the_agents_that_have_them():
    runs = wanted_runs(asked("dqn,c51,s51", changes={"v_max": 30.0, "mass_penalty": 1.0}))
    values = {run.agent: (run.v_max, run.mass_penalty) for run in runs}
    assert values == {"dqn": (10.0, 10.0), "c51": (30.0, 10.0), "s51": (30.0, 1.0)}
    for setting in dataclasses.fields(TrainConfig):
        agents, colon, _ = setting.metadata["help"].partition(": ")
        if colon and setting.metadata["group"] == "head":
            assert ONLY_FOR[setting.name] == tuple(agents.split(", "))
    assert set(ONLY_FOR) - {"mass_penalties"} <= set(AXES)


def test_settings_that_change_nothing_make_no_other_runs(tmp_path):
    with pytest.raises(ValueError, match=r"^replay_on must have one value in a sweep"):
        asked(axes={"replay_on": ("host", "device")})
    with pytest.raises(
        ValueError, match=r"^sticky is a setting of Atari games, and would be ignored by Breakout-MinAtar:"
    ):
        asked(axes={"sticky": (0.0, 0.25)})
    both = asked("dqn", f"{GAME},pong", "0", axes={"sticky": (0.0, 0.25)})
    folders = {cell.folder for cell in plan(both, tmp_path).cells}
    assert folders == {f"{GAME}/dqn__seed-0", "pong/dqn__seed-0__sticky-0", "pong/dqn__seed-0__sticky-0.25"}
    put_plan(asked("dqn", changes={"replay_on": "host"}), tmp_path)
    assert plan(asked("dqn", changes={"replay_on": "device"}), tmp_path).jobs == []


def test_a_run_of_a_preset_that_is_gone_begins_anew(tmp_path):
    config = dataclasses.replace(preset("smoke", "dqn", "pong", checkpoints="none"), preset="gone")
    put_run(tmp_path, "pong/dqn", config, 0)
    (job,) = plan(asked("dqn", "pong", "0", changes={"checkpoints": "none"}), tmp_path).jobs
    assert job.arguments[3:5] == ["--preset", "paper"]


def test_what_an_older_run_has_and_its_agent_has_not_is_no_flag(tmp_path):
    """Where a run begins anew from its own settings."""
    from cramerl.cli.train import read_settings

    config = dataclasses.replace(preset("smoke", "dqn", "pong", checkpoints="none"), v_max=7.0, mean_weight=0.1)
    put_run(tmp_path, "pong/dqn", config, 0)
    (job,) = plan(asked("dqn", "pong", "0", changes={"checkpoints": "none"}), tmp_path).jobs
    assert job.folder == "pong/dqn"
    assert identity(read_settings(parse(job.arguments))) == identity(config)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"agents": "dqn", "axes": {"mass_penalty": (1.0, 2.0)}},
            "mass_penalty is a setting of s51, and would be ignored by dqn: leave it out",
        ),
        ({"axes": {"steps": (1, 2)}}, "steps must have one value in a sweep, got 1,2"),
        ({"axes": {"discount": (0.9, 0.9)}}, "discount must have values that differ, got 0.9,0.9"),
    ],
)
def test_sweeps_that_make_no_sense(options, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        asked(**options)


# --- what is there, and what is left to do


def test_what_is_finished_is_not_done_again(tmp_path):
    sweep = asked("s51,dqn", f"{GAME},pong", axes={"normalisation": ("after", "before")})
    put_plan(sweep, tmp_path)
    again = plan(sweep, tmp_path)
    assert (again.jobs, len(again.done)) == ([], len(again.cells))
    # Recognised by settings: what the folder is called, how it was logged and which axes are named now do not matter.
    (tmp_path / "pong" / "s51__seed-0__normalisation-after").rename(tmp_path / "pong" / "mine")
    fewer = plan(asked("s51", "pong", "0", changes={"normalisation": "after", "eval_episodes": 3}), tmp_path)
    assert (fewer.jobs, fewer.done) == ([], ["pong/mine"])
    (tmp_path / "pong" / "mine").rename(tmp_path / "pong" / "s51__seed-7__normalisation-before")
    with pytest.raises(ValueError, match=r"s51__seed-7__normalisation-before is where .*, and holds another; move it"):
        plan(asked("s51", "pong", "7", axes=sweep.axes), tmp_path)


def test_what_is_new_is_added(tmp_path):
    put_plan(asked(seeds="0-9"), tmp_path)
    more = plan(asked("s51,c51", f"{GAME},pong", "0-11"), tmp_path)
    assert more.done == [f"{GAME}/s51__seeds-0-9"]
    new = [job.folder for job in more.jobs]
    assert f"{GAME}/s51__seeds-10-11" in new
    assert f"{GAME}/c51__seeds-0-11" in new
    assert sum(folder.startswith("pong/") for folder in new) == 24
    assert len(new) == 26


def test_what_is_begun_comes_first_and_is_gone_on_with(tmp_path):
    sweep = asked(envs="pong", seeds="0-2")
    config = {run.seed: run for run in wanted_runs(sweep)}
    put_run(tmp_path, "pong/s51__seed-1", config[1], 700)
    put_run(tmp_path, "pong/s51__seed-2", config[2])
    first, second = plan(sweep, tmp_path).jobs
    assert first.arguments == ["resume", str(tmp_path / "pong/s51__seed-1")]
    assert (first.step, first.steps, first.fresh) == (700, 2000, False)
    assert (second.folder, second.fresh) == ("pong/s51__seed-0", True)
    longer = plan(asked(envs="pong", seeds="1-2", changes={"steps": 3000}), tmp_path)
    assert [job.arguments[2:] for job in longer.jobs] == [["--steps", "3000"]] * 2
    shorter = plan(asked(envs="pong", seeds="1-2", changes={"steps": 100}), tmp_path)
    assert shorter.done == ["pong/s51__seed-2"]
    assert shorter.jobs == [first]


def test_what_cannot_be_resumed_begins_anew_but_no_finished_run_is_given_up(tmp_path):
    sweep = asked(envs="pong", seeds="0", changes={"checkpoints": "weights"})
    run = wanted_runs(sweep)[0]
    path = put_run(tmp_path, "pong/s51__seed-0", run, 700)
    (job,) = plan(sweep, tmp_path).jobs
    assert job.fresh
    assert job.arguments[0] == "train"
    (path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"s51__seed-0 is where a run of this sweep goes, and holds notes.txt"):
        plan(sweep, tmp_path)
    (path / "notes.txt").unlink()
    with (path / "metrics.jsonl").open("a") as log:
        log.write(json.dumps({"step": 2000, "seed": 0, "charts/epsilon": 0.1}) + "\n")
    assert plan(sweep, tmp_path).done == ["pong/s51__seed-0"]
    longer = asked(envs="pong", seeds="0", changes={"checkpoints": "weights", "steps": 3000})
    with pytest.raises(ValueError, match="cannot be made longer, for its checkpoints are 'weights', not 'full'"):
        plan(longer, tmp_path)


@pytest.mark.parametrize(("step", "steps"), [(2000, 3000), (1500, 2000)])
def test_a_log_whose_checkpoints_are_gone_is_kept(step, steps, tmp_path):
    sweep = asked(envs="pong", seeds="0")
    put_run(tmp_path, "pong/s51__seed-0", wanted_runs(sweep)[0], step, checkpoint=False)
    with pytest.raises(ValueError, match=f"has logged {step} steps but has no checkpoint to go on from to {steps}"):
        plan(asked(envs="pong", seeds="0", changes={"steps": steps}), tmp_path)


def test_a_run_is_finished_when_every_line_is_there(tmp_path):
    config = preset("smoke", "s51", "CartPole-v1", lanes=3, steps=200, eval_episodes=1)
    path = put_run(tmp_path, "CartPole-v1/x", config)
    assert not look_at(path).finished  # no evaluation yet
    log = path / "metrics.jsonl"
    whole = log.read_text() + json.dumps({"step": 200, "seed": 0, "eval/episodic_return": 1.0}) + "\n"
    log.write_text(whole)
    assert look_at(path).finished
    lines = whole.splitlines(keepends=True)
    log.write_text("".join([*lines[:-2], lines[-1]]))
    assert not look_at(path).finished
    log.write_text(whole[:-5])
    assert look_at(path).step == 200
    assert not look_at(path).finished


def lose(log: Path, lane: dict[str, float], step: int) -> None:
    """Let a lane end at a step: its lines from there on go, the last says that it diverged."""
    kept = []
    for line in log.read_text().splitlines():
        row = json.loads(line)
        its = all(row[name] == value for name, value in lane.items())
        if its and row["step"] == step:
            row = {name: value for name, value in row.items() if "/" not in name} | {"diverged": True}
        if not its or row["step"] <= step:
            kept.append(json.dumps(row) + "\n")
    log.write_text("".join(kept))


def test_a_run_is_finished_when_every_lane_is_finished_or_lost(tmp_path):
    config = preset("smoke", "s51", "CartPole-v1", lanes=3, learning_rates=(1e-3, 1.0), steps=1000, eval_episodes=1)
    lanes = config.lane_settings
    log = put_run(tmp_path, "CartPole-v1/x", config) / "metrics.jsonl"
    for number in (5, 3):
        lose(log, lanes[number], 300 + 100 * number)
    assert not look_at(log.parent).finished  # no evaluation yet
    last = json.dumps({"step": 1000, "seed": 0, "eval/episodic_return": 1.0}) + "\n"
    log.write_text(log.read_text() + last)
    assert (look_at(log.parent).finished, look_at(log.parent).lost) == (True, [3, 5])
    whole = log.read_text().splitlines(keepends=True)
    log.write_text("".join([*whole[:-2], whole[-1]]))
    assert not look_at(log.parent).finished
    # Of a first lane that is lost there is no evaluation at the end.
    log.write_text("".join(whole[:-1]))
    lose(log, lanes[0], 500)
    assert look_at(log.parent).finished
    # When all are lost, there is nothing left to do.
    for lane in (lanes[1], lanes[2], lanes[4]):
        lose(log, lane, 600)
    assert (look_at(log.parent).finished, look_at(log.parent).step) == (True, 800)


def test_other_settings_are_refused_not_mixed_in(tmp_path):
    put_plan(asked(), tmp_path)
    sentence = (
        f"{tmp_path}/{GAME}/s51__seeds-0-1 was trained with batch_size = 8, and this sweep asks for 16: take another "
        "folder, or vary it: --batch-size 8,16, or say --allow-variants to have both"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        plan(asked(seeds="5-6", changes={"batch_size": 16}), tmp_path)
    varied = asked(axes={"batch_size": (8, 16)})
    (job,) = plan(varied, tmp_path).jobs
    assert job.folder == f"{GAME}/s51__seeds-0-1__batch-size-16"
    put_run(tmp_path, job.folder, plan(varied, tmp_path).cells[-1].config)
    write_record(tmp_path, plan(varied, tmp_path), "another", [], {})
    # Once it is varied, one more value is no contradiction.
    (job,) = plan(asked(changes={"batch_size": 32}), tmp_path).jobs
    assert job.folder == f"{GAME}/s51__seeds-0-1__batch-size-32"


def test_other_settings_beside_are_cells_of_their_own(tmp_path):
    put_plan(asked("s51,u51"), tmp_path)
    chosen = {("u51", GAME): {"mean_weight": 0.1, "learning_rate": 0.002}}
    with pytest.raises(
        ValueError, match=r"and this sweep asks for 0\.\d+: take another folder, or say --allow-variants to have both$"
    ):
        plan(asked("u51", chosen=chosen), tmp_path)
    weighted = asked("u51", chosen=chosen, allow_variants=True)
    made = plan(weighted, tmp_path)
    (job,) = made.jobs
    assert job.folder == f"{GAME}/u51__seeds-0-1__learning-rate-0.002__mean-weight-0.1"
    put_run(tmp_path, job.folder, made.cells[0].config)
    choices = [{"agent": "u51", "env": GAME, "from": folder} for folder in ("rates", "weights")]
    write_record(tmp_path, made, "beside", choices, {})
    record = read_record(tmp_path)
    assert record["axes"] == {"learning_rate": [0.001, 0.002], "mean_weight": [0.0, 0.1]}
    assert record["chosen"] == choices
    # A cell that was there before says what sets it apart now.
    there = {cell["folder"]: cell["settings"] for cell in record["cells"]}
    assert there[f"{GAME}/u51__seeds-0-1"] == {"learning_rate": 0.001, "mean_weight": 0.0}
    assert [plan(sweep, tmp_path).jobs for sweep in (weighted, asked("s51,u51"))] == [[], []]
    with pytest.raises(ValueError, match=r"hidden_units = .* take another folder$"):  # a list of numbers is no axis
        plan(asked("u51", changes={"hidden_units": (3,)}, allow_variants=True), tmp_path)


def test_the_record_grows(tmp_path):
    put_plan(asked(), tmp_path)
    second = asked("dqn", "pong", "0", axes={"n_step": (1, 3)})
    made = plan(second, tmp_path)
    write_record(tmp_path, made, "second", [], {"pong/dqn__seed-0__n-step-3": "it broke"})
    write_record(tmp_path, made, "second", [], {"pong/dqn__seed-0__n-step-3": "it broke"})
    record = read_record(tmp_path)
    assert record["commands"] == ["cramerl sweep", "second"]
    assert record["axes"] == {"n_step": [1, 3]}
    assert [(cell["folder"], cell.get("failed")) for cell in record["cells"]] == [
        (f"{GAME}/s51__seeds-0-1", None),
        ("pong/dqn__seed-0__n-step-1", None),
        ("pong/dqn__seed-0__n-step-3", "it broke"),
    ]
    (tmp_path / "sweep.json").write_text('{"format": 9}')
    with pytest.raises(ValueError, match=r"sweep.json cannot be used: format must be 1, got 9"):
        read_record(tmp_path)


def test_the_command_that_makes_a_cell_again_is_kept(tmp_path):
    put_plan(asked(), tmp_path)
    done = plan(asked(), tmp_path)
    write_record(tmp_path, done, "spelled otherwise", [], {})
    assert read_record(tmp_path)["commands"] == ["cramerl sweep"]
    shutil.rmtree(tmp_path / done.cells[0].folder)
    write_record(tmp_path, plan(asked(), tmp_path), "again", [], {})
    assert read_record(tmp_path)["commands"] == ["cramerl sweep", "again"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("commands", [1]),
        ("axes", {"n_step": 3}),
        ("chosen", [{}]),
        ("chosen", ["x"]),
        ("cells", ["x"]),
        ("cells", [{"folder": "a", "agent": "s51", "env": "b", "settings": {}}]),
    ],
)
def test_a_damaged_record_is_a_sentence(name, values, tmp_path):
    record = {"format": 1, "commands": [], "axes": {}, "chosen": [], "cells": []} | {name: values}
    (tmp_path / "sweep.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=f"sweep.json cannot be used: {name} must hold "):
        read_record(tmp_path)


def test_one_sweep_at_a_time(tmp_path):
    with locked(tmp_path), pytest.raises(ValueError, match=r"^another sweep is running in "), locked(tmp_path):
        pass


# --- choosing


def rates(out: Path, scores: dict[float, float], agents="s51", **options) -> Sweep:
    """A finished sweep of learning rates, processes with one score each."""
    sweep = asked(agents, "pong", "0-1", axes={"learning_rate": tuple(scores)})
    made = plan(sweep, out)
    for cell in made.cells:
        put_run(out, cell.folder, cell.config, score=scores[cell.config.learning_rate] + cell.config.seed)
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
    put_plan(sweep, tmp_path / "final")
    refused = r"learning_rate = 0.001, and .* asks for 0.01: take another folder, or say --allow-variants to have both$"
    with pytest.raises(ValueError, match=refused):
        plan(asked(envs="pong", seeds="7", chosen={("s51", "pong"): {"learning_rate": 1e-2}}), tmp_path / "final")


def test_lanes_are_variants_too(tmp_path):
    sweep = asked(axes={"learning_rate": (1e-4, 1e-3)})
    put_plan(sweep, tmp_path)
    path = tmp_path / survey(tmp_path)[0].folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["charts/episodic_return"] = 9.0 if row["learning_rate"] == 1e-4 and row["step"] > 1600 else 5.0
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (choice,) = best_of(tmp_path, ["s51"], [GAME], [2])
    assert (choice.settings, choice.score) == ({"learning_rate": 1e-4}, 9.0)


def test_a_variant_with_a_lane_that_diverged_is_not_chosen(tmp_path):
    sweep = asked(axes={"learning_rate": (1e-4, 1e-3)})
    put_plan(sweep, tmp_path)
    log = tmp_path / survey(tmp_path)[0].folder / "metrics.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    for row in rows:
        row["charts/episodic_return"] = 9.0 if row["learning_rate"] == 1e-3 else 5.0
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lose(log, {"learning_rate": 1e-3, "seed": 1}, 1900)
    assert plan(sweep, tmp_path).jobs == []
    (choice,) = best_of(tmp_path, ["s51"], [GAME], [2])
    assert (choice.settings, choice.score) == ({"learning_rate": 1e-4}, 5.0)
    assert choice.others == [({"learning_rate": 1e-3}, None)]
    lose(log, {"learning_rate": 1e-4, "seed": 0}, 100)
    with pytest.raises(ValueError, match=f"^every variant of s51 on {GAME} failed or diverged: there is nothing"):
        best_of(tmp_path, ["s51"], [GAME], [2])


def test_what_an_environment_does_not_heed_is_not_chosen_for_it(tmp_path):
    put_plan(asked("dqn", f"{GAME},pong", "0", axes={"sticky": (0.0, 0.25)}), tmp_path)
    (choice,) = best_of(tmp_path, ["dqn"], [GAME], [5])
    assert choice.settings == {}
    with pytest.raises(
        ValueError, match=r"on pong in .* must be of one protocol .* \(not sticky\) and .* \(sticky 0.25\)"
    ):
        best_of(tmp_path, ["dqn"], ["pong"], [5])


def test_nothing_is_chosen_before_all_that_was_planned_is_there(tmp_path):
    rates(tmp_path, {1e-4: 3.0, 1e-3: 7.0})
    lost = tmp_path / "pong/s51__seed-1__learning-rate-0.001"
    shutil.rmtree(lost)
    with pytest.raises(ValueError, match=rf"{lost} is not there yet: nothing can be chosen before it is"):
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


def test_a_log_without_its_settings_is_not_overwritten(tmp_path):
    rates(tmp_path, {1e-4: 3.0, 1e-3: 7.0})
    run = tmp_path / "pong/s51__seed-1__learning-rate-0.001"
    (run / "config.json").unlink()
    with pytest.raises(
        ValueError, match=rf"{run} holds metrics.jsonl and no config.json, and would be lost; move it away"
    ):
        plan(asked("s51", "pong", "0-1", axes={"learning_rate": (1e-4, 1e-3)}), tmp_path)


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
    with pytest.raises(ValueError, match=r"best-of must be the folder of a sweep, .* has no sweep.json"):
        best_of(tmp_path, ["s51"], ["pong"], [5])
    sweep = Sweep(("s51",), ("pong",), (0,))
    (tmp_path / "begun").mkdir()
    write_record(tmp_path / "begun", make_plan(sweep, tmp_path / "begun", lambda _: False), "cramerl sweep", [], {})
    with pytest.raises(ValueError, match=r"best-of must be a sweep that is done, .*begun has no run yet"):
        best_of(tmp_path / "begun", ["s51"], ["pong"], [5])
    rates(tmp_path, {1e-4: 3.0, 1e-3: 7.0})
    with pytest.raises(ValueError, match="best-of must have c51 on pong"):
        best_of(tmp_path, ["s51", "c51"], ["pong"], [5])
    log = tmp_path / "pong/s51__seed-1__learning-rate-0.001/metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match="is not finished: nothing can be chosen before it is"):
        best_of(tmp_path, ["s51"], ["pong"], [5])


# --- processes

CHILD = """
import os, signal, sys, time
what = sys.argv[1]
if what == "wait":
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    print("ready", flush=True)
    time.sleep(60)
if what == "deaf":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    print("ready", flush=True)
    time.sleep(60)
if what == "stay":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("ready", flush=True)
    time.sleep(60)
if what == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
print("the last words")
sys.exit(int(what == "fail"))
"""


def job(out: Path, name: str, what: str) -> Job:
    """A job for the child above; its folder is that of a finished run if it is to be done."""
    if what == "done":
        put_run(out, name, preset("smoke", "dqn", "pong"))
    return Job(name, [what], 0, 100, 1, fresh=False)


def processes(out: Path, jobs: list[Job], slots: int = 2, **options) -> State:
    with locked(out) as lock:
        return execute(jobs, LocalProcesses(out, [sys.executable, "-c", CHILD], slots, lock), slots, **options)


def ready(out: Path, jobs: list[Job]) -> bool:
    logs = [log_file(out, job.folder) for job in jobs]
    return all(log.exists() and "ready" in log.read_text() for log in logs)


def test_a_job_that_fails_does_not_stop_the_others(tmp_path):
    jobs = [job(tmp_path, f"pong/{what}", what) for what in ("fail", "crash", "empty", "done")]
    state = processes(tmp_path, jobs)
    assert state.done == ["pong/done"]
    assert state.failed == {
        "pong/fail": "the last words",
        "pong/crash": "ended by SIGSEGV; $ cramerl crash",
        "pong/empty": "the last words",  # status 0, but no run
    }
    assert log_file(tmp_path, "pong/fail").read_text() == "$ cramerl fail\nthe last words\n"


def test_a_run_that_is_stopped_before_it_listens_has_not_failed(tmp_path):
    jobs = [job(tmp_path, "pong/0", "deaf")]
    state = processes(tmp_path, jobs, wish=lambda: int(ready(tmp_path, jobs)))
    assert ([job.folder for job in state.left], state.failed) == (["pong/0"], {})


def test_when_the_time_is_over_what_runs_is_stopped_and_nothing_begins(tmp_path):
    jobs = [job(tmp_path, f"pong/{i}", "wait") for i in range(3)]
    now = [0.0]
    state = processes(
        tmp_path,
        jobs,
        deadline=1.0,
        clock=lambda: now[0],
        watch=lambda state: now.__setitem__(0, 2.0 if ready(tmp_path, jobs[:2]) else 0.0),
    )
    assert (state.done, state.failed) == ([], {})
    assert sorted(job.folder for job in state.left) == ["pong/0", "pong/1", "pong/2"]
    assert not log_file(tmp_path, "pong/2").exists()


def test_a_second_wish_ends_them_at_once(tmp_path):
    jobs = [job(tmp_path, "pong/0", "stay")]
    wishes = [0]

    def watch(state: State) -> None:
        wishes[0] += ready(tmp_path, jobs)

    state = processes(tmp_path, jobs, watch=watch, wish=lambda: wishes[0])
    assert [job.folder for job in state.left] == ["pong/0"]
    assert state.failed == {}


def test_a_run_that_keeps_no_checkpoint_is_not_waited_for(tmp_path):
    jobs = [job(tmp_path, "pong/0", "stay")._replace(can_go_on=False)]
    state = processes(tmp_path, jobs, wish=lambda: int(ready(tmp_path, jobs)))
    assert ([job.folder for job in state.left], state.failed) == (["pong/0"], {})


def test_children_share_the_memory_of_an_accelerator(monkeypatch):
    assert child_environment({"A": "b"}, 1) == {"A": "b"}
    assert child_environment({}, 3) == {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.300"}
    mine = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    assert child_environment(mine, 3) == mine
    monkeypatch.setattr("cramerl.sweep.execute._ACCELERATORS", ["/dev/null"])
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert default_slots(8) == 1
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    assert [default_slots(jobs) for jobs in (0, 3, 20)] == [1, 3, 8]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_the_display_counts_cells_and_knows_the_time_left(stream, tmp_path, monkeypatch):
    for name, value in (("TERM", "xterm"), ("COLUMNS", "150")):
        monkeypatch.setenv(name, value)
    jobs = [Job(f"pong/{i}", ["train"], 0, 1000, 4, True) for i in range(3)]
    timing = put_run(tmp_path, "pong/0", preset("smoke", "s51", "pong"), 0) / "timing.jsonl"
    out, now = stream(), [0.0]
    with sweep_display(out, tmp_path, 5, clock=lambda: now[0]) as watch:
        watch(State([], {}, jobs[:1], jobs[1:], False))
        now[0] = 60.0
        timing.write_text(json.dumps({"step": 600, "charts/SPS": 45.0}) + "\n")
        watch(State([], {}, jobs[:1], jobs[1:], False))
        watch(State(["pong/0"], {"pong/1": "it broke"}, jobs[2:], [], True))
    words = out.getvalue()
    # 4 runs of 600 steps in a minute are 40 a second; 4 x 400 + 2 x 4000 are left.
    assert "5/8 cells done, 1 running, 2 waiting  45 steps/s  4 min left" in words
    for line in (
        "training pong/0",
        "finished pong/0",
        "failed pong/1: it broke",
        "stopping 1 cell with checkpoints; Ctrl-C now stops at once",
    ):
        assert f"{line}\n" in words
    assert ("\033[" in words) == (stream is Terminal)


def test_what_keeps_no_full_checkpoint_is_not_said_to_go_on(tmp_path, capsys):
    kept = ({"checkpoints": "weights"}, {})
    plans = [make_plan(Sweep(("s51",), ("pong",), (0,), changes=some), tmp_path, lambda _: False) for some in kept]
    (job,), (whole,) = (plan.jobs for plan in plans)
    out = io.StringIO()
    with sweep_display(out, tmp_path, 0) as watch:
        watch(State([], {}, [job], [], True))
    assert "stopping 1 cell (without full checkpoints); Ctrl-C" in out.getvalue()
    assert cli_sweep._how_it_goes_on(State([], {}, [], [whole], True)) == "the same command goes on"
    words = "with cells that were stopped from their beginning, for their checkpoints are not 'full'"
    assert cli_sweep._how_it_goes_on(State([], {}, [], [whole, job], True)).endswith(words)


# --- the command


def test_lanes_that_diverged_are_named_at_the_end(tmp_path, capsys):
    from argparse import Namespace

    from cramerl.cli.sweep import _report, _Wishes

    sweep = asked(axes={"learning_rate": (1e-4, 1e-3)})
    folder = put_plan(sweep, tmp_path).cells[0].folder
    lose(tmp_path / folder / "metrics.jsonl", {"learning_rate": 1e-3, "seed": 1}, 900)
    made = plan(sweep, tmp_path)
    assert _report(Namespace(out=tmp_path, minutes=None), made, State([], {}, [], [], False), _Wishes()) == 0
    assert capsys.readouterr().out == (
        f"1 cell in {tmp_path}: 1 done\ndiverged: {folder}: 1 of 4 lanes: 3 (learning_rate 0.001, seed 1)\n"
        f"to see them: cramerl report {tmp_path}\n"
    )


HOST = ["--agents", "s51", "--envs", "gym:CartPole-v1", *TINY, "--steps", "4e3", "--iteration-steps", "2000"]
HOST += ["--replay-steps", "3000", "--seeds", "0"]


def metrics(out: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in out.glob("*/*/metrics.jsonl")}


def test_a_dry_run_says_what_would_begin_anew(sweep_command, tmp_path, capsys):
    words = [tmp_path, "--agents", "s51", "--envs", "Breakout-MinAtar", "--seeds", "0-1", "--num-envs", "8"]
    words += ["--steps", "1000", "--min-replay-steps", "1", "--checkpoints", "none", "--dry-run"]
    settings = {"num_envs": 8, "checkpoints": "none"}
    run = write_run(tmp_path / "Breakout-MinAtar" / "s51__seed-0", "s51", **settings)
    write_rows(run, [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()[:3]])
    assert sweep_command(*words) == 0
    expected = f"# 2 cells in {tmp_path}: 0 done, 2 to do, 1 of them anew in place of what they have logged"
    assert capsys.readouterr().out.splitlines()[0] == expected


def test_again_longer_with_another_seed_and_a_cell_that_fails(sweep_command, tmp_path, capfd):
    out = tmp_path / "my sweep"
    words = [out, "--agents", "dqn", "--envs", "CartPole-v1", *TINY[:-2], "--jobs", "2"]
    first = [*words, "--seeds", "0-1,5", "--steps", "400"]
    assert sweep_command(*first) == 0
    assert f"2 cells in {out}: 2 done\n" in capfd.readouterr().out
    before = metrics(out)
    assert sorted(before) == ["dqn__seed-5", "dqn__seeds-0-1"]
    assert [line["seed"] for line in map(json.loads, before["dqn__seeds-0-1"].splitlines()[:2])] == [0, 1]

    for again in (first, [*words, "--seeds", "0,1,5", "--steps", "4e2"]):
        assert sweep_command(*again) == 0
        assert f"2 cells in {out}: 2 done\n" in capfd.readouterr().out
        assert metrics(out) == before
        assert len(read_record(out)["commands"]) == 1
    with locked(out):
        assert sweep_command(*first) == 2
    assert f"cramerl: another sweep is running in {out}" in capfd.readouterr().err

    more = [*words, "--seeds", "0-1,5-6", "--steps", "600"]
    assert sweep_command(*more, "--dry-run") == 0
    commands = capfd.readouterr().out.splitlines()
    assert commands[0] == f"# 3 cells in {out}: 0 done, 3 to do"
    assert f"cramerl resume '{out}/CartPole-v1/dqn__seeds-0-1' --steps 600" in commands
    assert commands[-1].startswith("cramerl train dqn CartPole-v1 --preset smoke --seed 6 --steps 600 ")
    assert metrics(out) == before

    # A cell whose checkpoints are damaged fails; the others are done all the same.
    for file in (out / "CartPole-v1" / "dqn__seed-5" / "checkpoints").glob("*/state.safetensors"):
        file.write_bytes(b"")
    assert sweep_command(*more) == 1
    said = capfd.readouterr()
    assert f"3 cells in {out}: 2 done, 1 failed\n" in said.out
    assert f"failed: CartPole-v1/dqn__seed-5: {out}" in said.out
    assert "holds no checkpoint that can be used" in said.out
    assert "Traceback" not in said.err
    assert {cell.folder.partition("__")[2]: cell.finished and cell.step for cell in survey(out)} == {
        "seeds-0-1": 600,
        "seed-5": 400,
        "seed-6": 600,
    }
    assert metrics(out)["dqn__seeds-0-1"].startswith(before["dqn__seeds-0-1"])
    record = read_record(out)
    assert record["commands"][1].endswith("--seeds 0-1,5-6 --preset smoke --steps 600 --hidden-units 8")
    assert [(cell["seeds"], "failed" in cell) for cell in record["cells"]] == [
        ([5], True),
        ([6], False),
        ([0, 1], False),
    ]


# SIGINT is ignored in processes started in the background; a terminal does not do that, so put the default back.
FROM_A_TERMINAL = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from cramerl.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def start(out: Path) -> subprocess.Popen[str]:
    """A sweep as a process of its own, when its run is learning."""
    log = log_file(out, "gym-CartPole-v1/s51__seed-0")
    seen = log.stat().st_size if log.exists() else 0
    command = [sys.executable, "-c", FROM_A_TERMINAL, "sweep", str(out), *HOST]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + 120
    while not (log.exists() and "loss" in log.read_text()[seen:]):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.02)
    return process


def wait_for_children(out: Path) -> None:
    """They hold the sweep's lock as long as they live."""
    end = time.monotonic() + 60
    with (out / ".lock").open() as file:
        while time.monotonic() < end:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.05)
    raise AssertionError("a child outlived its sweep")


def test_beside_from_the_command_line(sweep_command, tmp_path, capfd):
    put_plan(asked("u51"), tmp_path)
    made = plan(asked("u51", changes={"mean_weight": 0.1}, allow_variants=True), tmp_path)
    put_run(tmp_path, made.jobs[0].folder, made.cells[0].config)
    words = [tmp_path, "--agents", "u51", "--envs", GAME, "--seeds", "0-1", "--preset", "smoke", "--mean-weight", "0.1"]
    assert sweep_command(*words) == 2
    assert "vary it: --mean-weight 0,0.1, or say --allow-variants" in capfd.readouterr().err
    assert sweep_command(*words, "--allow-variants") == 0
    assert f"1 cell in {tmp_path}: 1 done\n" in capfd.readouterr().out
    assert read_record(tmp_path)["commands"][-1].endswith("--preset smoke --allow-variants --mean-weight 0.1")


@pytest.mark.slow
def test_killed_stopped_and_gone_on_with_is_as_if_nothing_had_happened(sweep_command, tmp_path):
    out = tmp_path / "out"
    process = start(out)
    process.kill()
    process.communicate()
    wait_for_children(out)

    process = start(out)
    process.send_signal(signal.SIGINT)
    words = process.communicate(timeout=60)[0]
    assert process.returncode == 130, words
    assert "stopping 1 cell with checkpoints; Ctrl-C now stops at once" in words
    assert f"1 cell in {out}: 0 done, 1 left" in words
    assert "Traceback" not in words
    wait_for_children(out)
    (cell,) = survey(out)
    assert not cell.finished
    assert cell.has_checkpoint

    assert sweep_command(out, *HOST) == 0
    assert sweep_command(tmp_path / "whole", *HOST) == 0
    assert metrics(out) == metrics(tmp_path / "whole")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the following arguments are required: --agents, --envs, --seeds"),
        (["--agents", "s52"], "agent must be one of dqn, c51, s51, u51, qr, hl_gauss, got 's52'"),
        (["--agents", "s51,"], "agents must be names with commas between, got 's51,'"),
        (["--envs", "ALE/Pnog-v5"], "did you mean 'pong'"),
        (["--seeds", "9-0"], "such as 0-9 or 0,2,5-7, got '9-0'"),
        (["--preset", "fast"], "preset must be one of paper, icml"),
        (["--network", "minatar,mlp"], "network 'minatar' needs pictures"),  # whichever cannot be built
        (["--normalisation", "after,never"], "normalisation must be one of after, before, got 'never'"),
        (
            ["--learning-rate", "1", "--learning-rates", "1,2"],
            "learning_rate and learning_rates must not both be given",
        ),
        (["--learning-rates", "1,x"], "learning_rate must be a number, got 'x'"),
        (["--steps", "1,2"], "steps must have one value in a sweep, got 1,2"),
        (["--num-env", "3"], "--num-env 3; did you mean --num-envs?"),
        (["--seed", "3"], "--seed 3; did you mean --seeds?"),
        (["--minutes", "0"], "--minutes: must be a number > 0, got '0'"),
        (["--jobs", "0"], "--jobs: must be an integer >= 1 and <= 1024, got '0'"),
        (["--best-of", "out"], "best-of must be another folder than OUT, got out for both"),
        (["--best-of", "nowhere"], "best-of must be the folder of a sweep, nowhere has no sweep.json"),
    ],
)
def test_bad_input(words, sentence, sweep_command, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    given = dict(zip(words[::2], words[1::2], strict=True))
    if words:
        given = {"--agents": "s51", "--envs": "CartPole-v1", "--seeds": "0"} | given
    try:
        status = sweep_command("out", *(word for pair in given.items() for word in pair))
    except SystemExit as end:
        status = end.code
    said = capfd.readouterr()
    assert status == 2, said.err
    assert sentence in said.err.splitlines()[-1]
    assert said.out == ""
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_folder(sweep_command, tmp_path, capfd):
    (tmp_path / "file").write_text("mine")
    for more in ([], ["--dry-run"]):
        assert sweep_command(tmp_path / "file", *HOST, *more) == 2
        assert capfd.readouterr().err == f"cramerl: OUT must be a folder, {tmp_path / 'file'} is a file\n"
    assert (tmp_path / "file").read_text() == "mine"


def test_help_teaches():
    words = subprocess.run(
        [sys.executable, "-m", "cramerl", "sweep", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for word in ("examples:", "--best-of", "--minutes", "--dry-run", "--learning-rates", "The same command again"):
        assert word in words
    assert "--lanes" not in words
