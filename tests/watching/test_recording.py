"""Recordings: pictures on a tape, predictions of agents, and evaluated processes."""

import json

import numpy as np
import pytest
from watch_recordings import make_recording

from cramerl.watching import recording
from cramerl.watching.page import write_page
from cramerl.watching.recording import Tape, read_evaluation


@pytest.mark.parametrize("count", [1, 16, 700])
def test_a_tape_gives_back_its_pictures(count, rng):
    pictures = rng.integers(0, 5, (count, 40, 50), dtype=np.uint8)
    tape = Tape((40, 50), pictures)
    for i in {0, count // 2, count - 1}:
        np.testing.assert_array_equal(tape[i], pictures[i])
    assert sum(chunk.steps for chunk in tape.chunks()) == len(tape) == count
    np.testing.assert_array_equal(np.stack([tape[i] for i in range(count)]), pictures)
    with pytest.raises(ValueError, match="picture must be uint8 of shape"):
        Tape((2, 2)).append(np.zeros((2, 3), np.uint8))


def test_predictions_that_are_not_finite_are_refused():
    distributions = np.full((1, 2, 3), np.nan)
    with pytest.raises(ValueError, match="s51 predicts numbers that are not finite"):
        recording.make_view("s51", np.arange(3.0), distributions, np.zeros((1, 2)), np.zeros(1, int))


def test_realised_returns():
    rewards, no = np.array([1.0, 0, 2, 1, 5]), np.zeros(5, bool)
    ended = np.array([0, 0, 1, 0, 0], bool)
    realised = recording.realised_returns(rewards, ended, np.array([0, 0, 1, 0, 1], bool), 0.5)
    np.testing.assert_allclose(realised, [1.5, 1, 2, np.nan, np.nan])
    assert np.isnan(recording.realised_returns(rewards, no, np.array([0, 0, 0, 0, 1], bool), 0.5)).all()


def test_the_return_of_a_long_episode_that_was_cut_is_known():
    rewards, no, cut = np.ones(500), np.zeros(500, bool), np.arange(500) == 499
    realised = recording.realised_returns(rewards, no, cut, 0.99)
    known = np.isfinite(realised)
    assert realised[0] == pytest.approx((1 - 0.99**500) / 0.01, rel=1e-5)
    left = 500 - np.arange(500)
    np.testing.assert_array_equal(known, 0.99**left / (1 - 0.99**left) <= 0.01)  # what may follow, relative to the sum
    assert 0 < known.sum() < 100
    assert np.isnan(recording.realised_returns(rewards, no, cut, 1.0)).all()
    assert np.isnan(recording.realised_returns(0 * rewards, no, cut, 0.99)).all()  # no reward says how large others are


def test_steps_of_episodes_that_were_cut():
    terminated, cut = np.array([0, 1, 0, 0, 0, 1], bool), np.array([0, 0, 0, 1, 0, 1], bool)
    np.testing.assert_array_equal(recording.cut_episodes(terminated, cut), [0, 0, 1, 1, 0, 0])


def test_bounds_of_returns():
    assert recording.return_bounds(np.array([1.0, 1.0]), 0.9) == pytest.approx((0, 10))
    assert recording.return_bounds(np.array([-1.0, 0.5]), 0.5) == (-2, 1)
    assert recording.return_bounds(np.zeros(3), 0.9) is None
    assert recording.return_bounds(np.ones(3), 1.0) is None


def test_limits_have_room_for_bars_and_for_all_but_extreme_masses():
    view = make_recording(views=("s51",)).views[0]
    (left, right), (bottom, top) = view.limits()
    assert (left, right) == pytest.approx((-11, 11))  # half a spacing on each side
    assert bottom < 0 < view.distributions[:, :, 5].mean() < top
    atoms, _ = make_recording(views=("qr",)).views[0].limits()
    assert atoms[0] < 0 < atoms[1]


def test_the_label_of_a_mean_outside_the_support_has_an_arrow():
    view = make_recording(1, views=("s51",)).views[0]
    assert view._replace(values=view.values * 0 + 12).mean_label(0, 0) == "mean 12.00 →"
    assert view._replace(values=view.values * 0 - 12).mean_label(0, 0) == "← mean -12.00"
    assert view._replace(values=view.values * 0).mean_label(0, 0) == "mean 0.00"
    assert "→" not in make_recording(1, views=("dqn",)).views[0].mean_label(0, 0)


def test_states_of_an_evaluation(tmp_path):
    from cramerl.evaluations import write_evaluation
    from cramerl.linear import evaluate, suggest_support, tabular
    from cramerl.linear.examples import random_walk

    walk = random_walk(discount=0.9)
    found = evaluate(walk, tabular(walk.num_states), suggest_support(walk, 21))
    write_evaluation(found, tmp_path)
    made = read_evaluation(tmp_path)
    assert made.unit == "state"
    assert len(made) == walk.num_states
    np.testing.assert_allclose(made.views[0].distributions[:, 0], found.masses, atol=1e-5)
    np.testing.assert_allclose(made.views[0].values[:, 0], found.values, rtol=1e-5, atol=1e-6)
    assert made.visits is not None
    np.testing.assert_allclose(made.visits, found.problem.state_distribution, rtol=1e-5)
    assert made.place(3) == "state 3"
    assert (made.tape[2] == 2).any()
    write_page(made, tmp_path / "page.html")


def test_one_of_many_states_can_be_seen(tmp_path):
    states = 700  # more than the picture has columns
    distributions = {"states": list(range(states)), "means": [1.0] * states, "visited": [1 / states] * states}
    content = {
        "support": [0, 1],
        "normalisation": "before",
        "distributions": distributions | {"masses": [[0, 1]] * states},
    }
    content["process"] = "MarkovRewardProcess(700 states, discount 0.9)"
    (tmp_path / "evaluation.json").write_text(json.dumps(content))
    made = read_evaluation(tmp_path)
    assert made.title.endswith(": 700 states, discount 0.9")
    for step in (0, 350, 699):
        marked = np.flatnonzero((made.tape[step][-4:] == 2).all(axis=0))
        assert len(marked) >= 4
        assert abs(marked.mean() - step / states * 480) < 5


def test_an_evaluation_that_cannot_be_read_is_a_sentence(tmp_path):
    for text, words in (
        ("{", "cannot be used"),
        ('{"support": [0, 1]}', "holds no distributions; run cramerl evaluate again"),
    ):
        (tmp_path / "evaluation.json").write_text(text)
        with pytest.raises(ValueError, match=words):
            read_evaluation(tmp_path)
    distributions = {"states": [0], "means": [0], "visited": [1], "masses": [[1, 2, 3]]}
    (tmp_path / "evaluation.json").write_text(
        json.dumps({"support": [0, 1], "normalisation": "before", "distributions": distributions})
    )
    with pytest.raises(ValueError, match=r"distributions must be \(states, 2\) numbers, got \(1, 3\)"):
        read_evaluation(tmp_path)


@pytest.mark.parametrize(
    ("env_id", "size", "kinds", "label"),
    [
        ("FrozenLake-v1", (4, 4), {"start", "goal", "hole"}, "5, row 2, column 2, hole"),
        ("CliffWalking-v1", (4, 12), {"start", "goal", "cliff"}, "5, row 1, column 6"),
        ("Taxi-v4", (5, 5), set(), "5, row 1, column 1, passenger at green, to green"),
    ],
)
def test_worlds_of_gymnasium_are_drawn_as_grids(tmp_path, env_id, size, kinds, label):
    from cramerl.evaluations import write_evaluation
    from cramerl.evaluations.processes import named_features, named_process
    from cramerl.linear import evaluate, suggest_support

    process = named_process(env_id, "uniform", 0.9)
    write_evaluation(
        evaluate(process, named_features("tabular", process, bias=False), suggest_support(process, 11)), tmp_path
    )
    made = read_evaluation(tmp_path)
    rows, columns = size
    side = made.tape.size[0] // rows
    assert made.tape.size == (rows * side, columns * side)
    assert made.labels[5] == label
    assert kinds <= {name for name, _ in made.legend}
    here = np.array(list(bytes.fromhex(dict(made.legend)["this state"][1:])))
    for state in range(0, len(made), 7):
        framed = np.argwhere((made.picture(state) == here).all(axis=-1)) // side
        assert len(np.unique(framed, axis=0)) == 1
        assert (framed[0] == np.array(np.divmod(process.grid.cells[state], columns))).all()


def test_the_lighter_cell_has_the_greater_mean(tmp_path):
    content = evaluated_grid(means=[0.0, 1.0, 0.5, 0.0], visited=[0.5, 0.3, 0.2, 0.0])
    (tmp_path / "evaluation.json").write_text(json.dumps(content))
    made = read_evaluation(tmp_path)
    side = made.tape.size[0] // 2
    light = made.picture(0)[side // 2 :: side, side // 2 :: side].sum(axis=-1).ravel()
    assert light[3] < light[0] < light[2] < light[1]  # the last one is dark: no time is spent there
    np.testing.assert_array_equal(np.isnan(made.views[0].total), [0, 0, 0, 1])


def evaluated_grid(means, visited, **changed):
    grid = {"rows": 2, "columns": 2, "cells": [0, 1, 2, 3], "kinds": [""] * 4, "layers": [0] * 4, "layer_names": [""]}
    distributions = {"states": [0, 1, 2, 3], "means": means, "visited": visited, "masses": [[0.5, 0.5]] * 4}
    return {"support": [0, 1], "normalisation": "before", "distributions": distributions, "grid": grid | changed}


@pytest.mark.parametrize("changed", [{"cells": [0, 1, 2, 4]}, {"kinds": [""]}, {"rows": 0}, {"layers": [1] * 4}])
def test_a_grid_that_is_none_is_a_sentence(tmp_path, changed):
    content = evaluated_grid([0.0] * 4, [0.25] * 4, **changed)
    (tmp_path / "evaluation.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="cannot be used"):
        read_evaluation(tmp_path)
