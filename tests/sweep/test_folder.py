"""The folder of a sweep: what is done again and what is not, what is refused, and the record."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from sweep_folders import GAME, asked, diverge, plan, put_run, put_sweep

from cramerl.runs.group import RunGroup
from cramerl.runs.presets import preset
from cramerl.sweep.folder import inspect_run, locked, read_record, write_record
from cramerl.sweep.plan import wanted_runs


def folders(jobs) -> list[str]:
    return [job.folder for job in jobs]


def test_what_is_finished_is_not_done_again(tmp_path):
    sweep = asked("s51,dqn", f"{GAME},pong", axes={"normalisation": ("after", "before")})
    put_sweep(sweep, tmp_path)
    again = plan(sweep, tmp_path)
    assert (again.jobs, len(again.done)) == ([], 3 + 6)
    # Recognised by settings: the folder's name, how it was logged and which settings are axes now do not matter.
    (tmp_path / "pong" / "s51__seed-0__normalisation-after").rename(tmp_path / "pong" / "mine")
    fewer = plan(asked("s51", "pong", "0", changes={"normalisation": "after", "eval_episodes": 3}), tmp_path)
    assert (fewer.jobs, folders(fewer.done)) == ([], ["pong/mine"])
    # A name that another run has is not used again.
    (tmp_path / "pong" / "mine").rename(tmp_path / "pong" / "s51__seed-7__normalisation-before")
    new = plan(asked("s51", "pong", "7", axes=sweep.axes), tmp_path).jobs
    assert folders(new) == ["pong/s51__seed-7__normalisation-after", "pong/s51__seed-7__normalisation-before__2"]


def test_what_is_new_is_added(tmp_path):
    put_sweep(asked(seeds="0-9"), tmp_path)
    more = plan(asked("s51,c51", f"{GAME},pong", "0-11"), tmp_path)
    assert folders(more.done) == [f"{GAME}/s51__seeds-0-9"]
    new = folders(more.jobs)
    assert f"{GAME}/s51__seeds-10-11" in new
    assert f"{GAME}/c51__seeds-0-11" in new
    assert sum(folder.startswith("pong/") for folder in new) == 24
    assert len(new) == 26


def test_one_job_for_all_that_is_added(tmp_path):
    put_sweep(asked(axes={"learning_rate": (1e-4, 1e-3)}), tmp_path)
    (job,) = plan(asked(seeds="0-4", axes={"learning_rate": (1e-4, 1e-3, 1e-2)}), tmp_path).jobs
    assert {(run.seed, run.learning_rate) for run in job.group.configs} == {
        *((seed, 1e-2) for seed in range(5)),
        *((seed, rate) for seed in (2, 3, 4) for rate in (1e-4, 1e-3)),
    }


def test_what_was_started_is_resumed_first(tmp_path):
    sweep = asked(envs="pong", seeds="0-2")
    config = {run.seed: run for run in wanted_runs(sweep)}
    put_run(tmp_path, "pong/s51__seed-1", config[1], 700)
    put_run(tmp_path, "pong/s51__seed-2", config[2])
    first, second = plan(sweep, tmp_path).jobs
    assert (first.folder, first.step, first.steps, first.start) == ("pong/s51__seed-1", 700, 2000, "resume")
    assert (second.folder, second.start) == ("pong/s51__seed-0", "new")
    longer = plan(asked(envs="pong", seeds="1-2", changes={"steps": 3000}), tmp_path)
    assert [(job.start, job.step, job.steps) for job in longer.jobs] == [("resume", 700, 3000), ("resume", 2000, 3000)]
    shorter = plan(asked(envs="pong", seeds="1-2", changes={"steps": 100}), tmp_path)
    assert folders(shorter.done) == ["pong/s51__seed-2"]
    assert shorter.jobs == [first]


def test_what_cannot_be_resumed_starts_again_but_no_finished_run_is_given_up(tmp_path):
    sweep = asked(envs="pong", seeds="0", changes={"checkpoints": "weights"})
    path = put_run(tmp_path, "pong/s51__seed-0", wanted_runs(sweep)[0], 700)
    (job,) = plan(sweep, tmp_path).jobs
    assert (job.start, job.step, job.resumable) == ("restart", 0, False)
    (path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"s51__seed-0 is where a run of this sweep belongs, but holds notes.txt"):
        plan(sweep, tmp_path)
    (path / "notes.txt").unlink()
    with (path / "metrics.jsonl").open("a") as log:
        log.write(json.dumps({"step": 2000, "seed": 0, "charts/epsilon": 0.1}) + "\n")
    assert folders(plan(sweep, tmp_path).done) == ["pong/s51__seed-0"]
    longer = asked(envs="pong", seeds="0", changes={"checkpoints": "weights", "steps": 3000})
    with pytest.raises(ValueError, match="cannot be made longer, because its checkpoints are 'weights', not 'full'"):
        plan(longer, tmp_path)


@pytest.mark.parametrize(("step", "steps"), [(2000, 3000), (1500, 2000)])
def test_a_log_without_its_checkpoints_is_kept(step, steps, tmp_path):
    sweep = asked(envs="pong", seeds="0")
    put_run(tmp_path, "pong/s51__seed-0", wanted_runs(sweep)[0], step, checkpoint=False)
    sentence = f"has logged {step} steps but has no checkpoint from which to continue to {steps}"
    with pytest.raises(ValueError, match=sentence):
        plan(asked(envs="pong", seeds="0", changes={"steps": steps}), tmp_path)


def test_a_log_without_its_settings_is_not_overwritten(tmp_path):
    put_sweep(asked(envs="pong"), tmp_path)
    run = tmp_path / "pong/s51__seed-1"
    (run / "config.json").unlink()
    with pytest.raises(ValueError, match=rf"{run} holds metrics.jsonl but no config.json, and would be overwritten"):
        plan(asked(envs="pong"), tmp_path)


def test_settings_that_do_not_change_a_run_make_no_other_runs(tmp_path):
    both = asked("dqn", f"{GAME},pong", "0", axes={"noop_max": (0, 30)})
    names = {f"{GAME}/dqn__seed-0", "pong/dqn__seed-0__noop-max-0", "pong/dqn__seed-0__noop-max-30"}
    assert set(folders(plan(both, tmp_path).jobs)) == names
    put_sweep(asked("dqn", changes={"replay_on": "host"}), tmp_path)
    assert plan(asked("dqn", changes={"replay_on": "device"}), tmp_path).jobs == []


def test_a_run_is_finished_when_every_line_is_there(tmp_path):
    group = RunGroup.of(preset("smoke", "s51", "CartPole-v1", steps=200, eval_episodes=1), seed=range(3))
    path = put_run(tmp_path, "CartPole-v1/x", group)
    assert not inspect_run(path).finished  # it has no evaluation yet
    log = path / "metrics.jsonl"
    rows = [json.dumps({"step": 200, "seed": seed, "eval/episodic_return": 1.0}) + "\n" for seed in range(3)]
    whole = log.read_text() + "".join(rows)
    log.write_text(log.read_text() + "".join(rows[:2]))
    assert not inspect_run(path).finished  # of the last run
    log.write_text(whole)
    assert inspect_run(path).finished
    lines = whole.splitlines(keepends=True)
    log.write_text("".join([*lines[:-4], *lines[-3:]]))
    assert not inspect_run(path).finished
    log.write_text(whole[:-5])
    assert inspect_run(path).step == 200
    assert not inspect_run(path).finished


def test_a_group_is_finished_when_every_run_is_finished_or_diverged(tmp_path):
    config = preset("smoke", "s51", "CartPole-v1", steps=1000, eval_episodes=1)
    group = RunGroup.of(config, seed=range(3), learning_rate=(1e-3, 1.0))
    log = put_run(tmp_path, "CartPole-v1/x", group) / "metrics.jsonl"
    for lane in (5, 3):
        diverge(log, group.lanes[lane], 300 + 100 * lane)
    assert not inspect_run(log.parent).finished  # it has no evaluation yet
    evaluated = [{"step": 1000, **group.lanes[lane], "eval/episodic_return": 1.0} for lane in (0, 1, 2, 4)]
    log.write_text(log.read_text() + "".join(json.dumps(row) + "\n" for row in evaluated))
    assert (inspect_run(log.parent).finished, inspect_run(log.parent).diverged) == (True, [3, 5])
    whole = log.read_text().splitlines(keepends=True)
    log.write_text("".join([*whole[:-5], *whole[-4:]]))
    assert not inspect_run(log.parent).finished
    # A run that diverged has no evaluation at the end.
    log.write_text("".join([*whole[:-4], *whole[-3:]]))
    diverge(log, group.lanes[0], 500)
    assert inspect_run(log.parent).finished
    # If all diverged, there is nothing left to do.
    for lane in (1, 2, 4):
        diverge(log, group.lanes[lane], 600)
    assert (inspect_run(log.parent).finished, inspect_run(log.parent).step) == (True, 800)


def test_other_settings_are_refused_not_mixed_in(tmp_path):
    put_sweep(asked(), tmp_path)
    sentence = (
        f"{tmp_path}/{GAME}/s51__seeds-0-1 was trained with batch_size = 8, but this sweep asks for 16: use another "
        "folder, or vary it: --batch-size 8,16, or keep both with --allow-variants"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        plan(asked(seeds="5-6", changes={"batch_size": 16}), tmp_path)
    varied = plan(asked(axes={"batch_size": (8, 16)}), tmp_path)
    assert folders(varied.jobs) == [f"{GAME}/s51__seeds-0-1__batch-size-16"]
    put_run(tmp_path, varied.jobs[0].folder, varied.jobs[0].group)
    write_record(tmp_path, plan(asked(axes={"batch_size": (8, 16)}), tmp_path), "another", [], {})
    # Once it is varied, one more value is not a contradiction.
    (job,) = plan(asked(changes={"batch_size": 32}), tmp_path).jobs
    assert job.folder == f"{GAME}/s51__seeds-0-1__batch-size-32"


def test_variants_are_kept_where_they_are_allowed(tmp_path):
    put_sweep(asked("s51,u51"), tmp_path)
    chosen = {("u51", GAME): {"mean_weight": 0.1, "learning_rate": 0.002}}
    with pytest.raises(ValueError, match=r"but this sweep asks for 0\.\d+: use another folder, or keep both with --al"):
        plan(asked("u51", chosen=chosen), tmp_path)
    weighted = asked("u51", chosen=chosen, allow_variants=True)
    made = plan(weighted, tmp_path)
    (job,) = made.jobs
    assert job.folder == f"{GAME}/u51__seeds-0-1__learning-rate-0.002__mean-weight-0.1"
    put_run(tmp_path, job.folder, job.group)
    choices = [{"agent": "u51", "env": GAME, "from": folder} for folder in ("rates", "weights")]
    write_record(tmp_path, made, "more", choices, {})
    record = read_record(tmp_path)
    assert record["axes"] == {"learning_rate": [0.001, 0.002], "mean_weight": [0.0, 0.1]}
    assert record["chosen"] == choices
    assert [plan(sweep, tmp_path).jobs for sweep in (weighted, asked("s51,u51"))] == [[], []]
    with pytest.raises(ValueError, match=r"hidden_units = .* use another folder$"):  # a list of numbers is not an axis
        plan(asked("u51", changes={"hidden_units": (3,)}, allow_variants=True), tmp_path)


def test_the_record_grows(tmp_path):
    put_sweep(asked(), tmp_path)
    made = plan(asked("dqn", "pong", "0", axes={"n_step": (1, 3)}), tmp_path)
    for _ in range(2):
        write_record(tmp_path, made, "second", [], {"pong/dqn__seed-0__n-step-3": "it broke"})
    record = read_record(tmp_path)
    assert record["commands"] == ["cramerl sweep", "second"]
    assert record["axes"] == {"n_step": [1, 3]}
    assert [(job["folder"], job.get("failed")) for job in record["jobs"]] == [
        (f"{GAME}/s51__seeds-0-1", None),
        ("pong/dqn__seed-0__n-step-1", None),
        ("pong/dqn__seed-0__n-step-3", "it broke"),
    ]
    (tmp_path / "sweep.json").write_text('{"format": 9}')
    with pytest.raises(ValueError, match=r"sweep.json cannot be used: format must be 2, got 9"):
        read_record(tmp_path)


def test_the_command_that_makes_a_job_again_is_recorded(tmp_path):
    put_sweep(asked(), tmp_path)
    done = plan(asked(), tmp_path)
    write_record(tmp_path, done, "in other words", [], {})
    assert read_record(tmp_path)["commands"] == ["cramerl sweep"]
    shutil.rmtree(tmp_path / done.done[0].folder)
    write_record(tmp_path, plan(asked(), tmp_path), "again", [], {})
    assert read_record(tmp_path)["commands"] == ["cramerl sweep", "again"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("commands", [1]),
        ("axes", {"n_step": 3}),
        ("chosen", [{}]),
        ("chosen", ["x"]),
        ("jobs", ["x"]),
        ("jobs", [{"folder": "a", "agent": "s51"}]),
        ("jobs", {}),
        ("commands", None),
    ],
)
def test_a_damaged_record_is_a_sentence(name, values, tmp_path):
    record = {"format": 2, "commands": [], "axes": {}, "chosen": [], "jobs": []} | {name: values}
    (tmp_path / "sweep.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=f"sweep.json cannot be used: {name} must hold "):
        read_record(tmp_path)


def test_one_sweep_at_a_time(tmp_path):
    with locked(tmp_path), pytest.raises(ValueError, match=r"^another sweep is running in "), locked(tmp_path):
        pass
