"""The runs and groups that a sweep consists of."""

from __future__ import annotations

import re

import pytest
from sweep_folders import GAME, asked

from cramerl.runs.config import SETTINGS
from cramerl.sweep.plan import AXES, folder_name, group_runs, identity, wanted_runs


def test_runs_share_a_program_where_the_environment_is_compiled():
    axes = {"learning_rate": (1e-4, 1e-3), "mass_penalty": (1.0, 10.0)}
    groups = group_runs(wanted_runs(asked("dqn,s51", f"{GAME},pong", axes=axes)))
    compiled = {folder_name(group, axes): len(group) for group in groups if group.first.env == GAME}
    assert compiled == {
        f"{GAME}/dqn__seeds-0-1__learning-rate-0.0001_0.001": 4,
        f"{GAME}/s51__seeds-0-1__learning-rate-0.0001_0.001__mass-penalty-1_10": 8,
    }
    others = [group for group in groups if group.first.env == "pong"]
    assert len(others) == 2 * (2 + 4)
    assert folder_name(others[0], axes) == "pong/dqn__seed-0__learning-rate-0.0001"
    # An unfinished sweep can be compared: all of seed 0 comes before anything of seed 1.
    assert [group.first.seed for group in others] == sorted(group.first.seed for group in others)


@pytest.mark.parametrize("seed", range(6))
def test_groups_hold_every_run_once(seed, rng):
    """Whichever runs are missing, and however few runs a program may have."""
    axes = {
        "learning_rate": (1e-4, 1e-3, 1e-2),
        "mass_penalty": (0.0, 1.0),
        "mass_penalty_scale": ("total", "orthonormal"),
    }
    runs = wanted_runs(asked("s51,dqn", f"{GAME},pong", "0-3,7", axes=axes))
    # A penalty of zero is the same on both scales.
    assert len(runs) == 2 * 5 * (3 * 3 + 3)
    keep = [run for run, kept in zip(runs, rng.random(len(runs)) < (seed + 1) / 6, strict=True) if kept]
    most = 1 + seed if seed % 2 else 4096
    groups = group_runs(keep, most)
    held = [identity(run) for group in groups for run in group.configs]
    assert len(held) == len(set(held))
    assert set(held) == {identity(run) for run in keep}
    assert all(len(group) <= most for group in groups)


def test_a_group_that_is_split_keeps_the_values_of_a_seed_together():
    runs = wanted_runs(asked(seeds="0-3", axes={"learning_rate": (1e-4, 1e-3)}))
    assert [group.values("seed") for group in group_runs(runs, 4)] == [[0, 1], [2, 3]]


def test_folders_are_named_by_seeds_and_varied_settings():
    (group,) = group_runs(wanted_runs(asked(seeds="0-3,5,7-8", axes={"n_step": (3,)})))
    assert folder_name(group, ["n_step"]) == f"{GAME}/s51__seeds-0-3_5_7-8__n-step-3"
    (group,) = group_runs(wanted_runs(asked(seeds="0,2,4,6,8,10,12")))
    assert folder_name(group) == f"{GAME}/s51__seeds-0_to_12_7-values"


def test_settings_go_to_the_agents_that_use_them():
    runs = wanted_runs(asked("dqn,c51,s51", changes={"v_min": -30.0, "v_max": 30.0, "mass_penalty": 1.0}))
    values = {run.agent: (run.v_max, run.mass_penalty) for run in runs}
    assert values == {"dqn": (None, 10.0), "c51": (30.0, 10.0), "s51": (30.0, 1.0)}
    assert {name for name, setting in SETTINGS.items() if setting.group == "head"} <= set(AXES)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"agents": "dqn", "axes": {"mass_penalty": (1.0, 2.0)}},
            "mass_penalty is a setting of s51 and would be ignored by dqn: leave it out",
        ),
        (
            {"axes": {"noop_max": (0, 30)}},
            "noop_max is a setting of Atari games and would be ignored by Breakout-MinAtar: leave it out",
        ),
        ({"axes": {"steps": (1, 2)}}, "steps must have one value in a sweep, got 1,2"),
        ({"axes": {"replay_on": ("host", "device")}}, "replay_on must have one value in a sweep, got host,device"),
        ({"axes": {"discount": (0.9, 0.9)}}, "discount must have values that differ, got 0.9,0.9"),
    ],
)
def test_sweeps_that_make_no_sense(options, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        asked(**options)
