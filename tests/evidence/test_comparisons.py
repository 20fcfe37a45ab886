"""Which agents and variants are compared with which, and by how much one is ahead."""

import itertools

import numpy as np
from study_runs import column, summary_of, tables_of, write_run

from cramerl.evidence.curves import area_under_curve, read_curves
from cramerl.reports.tables import number

GAMES = ("Asterix-MinAtar", "Breakout-MinAtar")
LEVELS = {"dqn": 10.0, "c51": 11.0, "s51": 8.0, "u51": 12.0}


def compared(path, **scoring):
    """Who is compared with whom, in words."""
    return column(tables_of(summary_of(path, **scoring))["comparisons"], 0)


def test_which_agents_are_compared(tmp_path):
    for env in GAMES:
        for agent, level in LEVELS.items():
            write_run(tmp_path / f"{env}-{agent}", agent, env, level=level, seeds=3)
    found = tables_of(summary_of(tmp_path))["comparisons"].rows
    pairs = list(dict.fromkeys(row[0] for row in found))
    words = ["u51 against s51", "c51 against dqn", "s51 against dqn", "u51 against dqn", "s51 against c51"]
    assert pairs == [*words, "u51 against c51"]
    assert [row[1] for row in found[:3]] == [*GAMES, "all, normalised"]
    assert found[0][3] == "1.00 [1.00, 1.00]"
    curves = [curve for curve in read_curves([tmp_path]) if curve.env == GAMES[0]]
    whole = {agent: [area_under_curve(curve) for curve in curves if curve.agent == agent] for agent in ("u51", "s51")}
    assert found[0][4].startswith(f"{number(np.mean(whole['u51']) - np.mean(whole['s51']))} [")
    assert found[0][4] != found[0][2]
    assert found[2][4] == ""


def test_variants_without_a_plain_form_are_compared_with_their_nearest(tmp_path):
    """In the order of their numbers; a preset's values are not special."""
    for epsilon, steps in ((1e-8, 3), (1e-8, 10), (3e-4, 3), (3e-4, 10), (5e-2, 3)):
        run = tmp_path / "runs" / f"{epsilon} {steps}"
        write_run(run, "u51", seeds=2, n_step=steps, optimiser_epsilon=epsilon, mean_weight=0.1)
    names = compared(tmp_path / "runs")
    assert [name.removeprefix("u51, mean_weight 0.1, ") for name in names] == [
        "n_step 3, optimiser_epsilon 0.0003 against optimiser_epsilon 1e-08",
        "n_step 3, optimiser_epsilon 0.05 against optimiser_epsilon 1e-08",
        "n_step 3, optimiser_epsilon 0.05 against optimiser_epsilon 0.0003",
        "n_step 10, optimiser_epsilon 1e-08 against n_step 3",
        "n_step 10, optimiser_epsilon 0.0003 against n_step 3",
        "n_step 10, optimiser_epsilon 0.0003 against optimiser_epsilon 1e-08",
    ]


def test_variants_are_compared_with_their_like_and_with_the_plain_agent(tmp_path):
    for agent, settings in (
        ("s51", {}),
        ("s51", {"mean_weight": 0.1}),
        ("u51", {"mean_weight": 0.1, "base_distribution": "zero"}),
    ):
        write_run(tmp_path / "runs" / f"{agent}{len(settings)}", agent, seeds=2, **settings)
    ours = "u51, base_distribution zero, mean_weight 0.1"  # named though no other u51 is there
    assert compared(tmp_path / "runs") == [
        f"{ours} against s51, mean_weight 0.1",
        f"{ours} against s51",
        "s51, mean_weight 0.1 against s51",
    ]


def test_only_what_has_played_a_game_is_compared_on_it(tmp_path):
    """The nearest variant, or the plain agent, may have played another game only."""
    played = (("Asterix-MinAtar", 0.0, 1), ("Breakout-MinAtar", 0.1, 1), ("Breakout-MinAtar", 1.0, 3))
    for env, weight, steps in (*played, ("Asterix-MinAtar", 1.0, 1)):
        run = tmp_path / "runs" / f"{env}{weight}{steps}"
        write_run(run, "u51", env, seeds=2, mean_weight=weight, n_step=steps)
    names = [row[:2] for row in tables_of(summary_of(tmp_path / "runs"))["comparisons"].rows]
    assert names == [
        ["u51, mean_weight 1, n_step 1 against u51, n_step 1", "Asterix-MinAtar"],
        ["u51, mean_weight 1, n_step 3 against mean_weight 0.1, n_step 1", "Breakout-MinAtar"],
    ]


def test_agents_are_alike_in_what_only_one_of_them_varies(tmp_path):
    for agent, steps, high in (
        ("u51", 1, 10.0),
        ("u51", 1, 30.0),
        ("u51", 3, 10.0),
        ("c51", 1, 10.0),
        ("c51", 3, 10.0),
    ):
        write_run(tmp_path / "runs" / f"{agent}{steps}{high}", agent, seeds=2, n_step=steps, v_max=high)
    names = compared(tmp_path / "runs")
    assert [name for name in names if name.startswith("u51") and "c51" in name] == [
        "u51, n_step 1, v_max 10 against c51, n_step 1",
        "u51, n_step 3, v_max 10 against c51, n_step 3",
    ]


def test_variants_of_one_protocol_are_nearer(tmp_path):
    for steps, epsilon in itertools.product((1, 3), (0.05, 0.1)):
        run = tmp_path / "runs" / f"{steps}{epsilon}"
        write_run(run, "u51", seeds=2, n_step=steps, exploration_final=epsilon)
    names = compared(tmp_path / "runs", mix_protocols=True)
    assert names == [
        "u51, n_step 1, epsilon 0.1 against epsilon 0.05",
        "u51, n_step 3, epsilon 0.05 against n_step 1",
        "u51, n_step 3, epsilon 0.1 against n_step 1",
        "u51, n_step 3, epsilon 0.1 against epsilon 0.05",
    ]


def test_of_many_values_the_first_and_the_last_are_compared(tmp_path):
    for steps in range(1, 7):
        write_run(tmp_path / "runs" / str(steps), "u51", seeds=2, n_step=steps)
    names = compared(tmp_path / "runs")
    last = [name for name in names if name.startswith("u51, n_step 6 ")]
    assert last == ["u51, n_step 6 against n_step 1", "u51, n_step 6 against n_step 5"]


def test_variants_of_a_plain_agent_are_compared_with_it_only(tmp_path):
    for weight in (0.0, 0.1, 1.0):
        write_run(tmp_path / "runs" / str(weight), "u51", seeds=2, mean_weight=weight)
    assert compared(tmp_path / "runs") == [
        "u51, mean_weight 0.1 against u51",
        "u51, mean_weight 1 against u51",
    ]
