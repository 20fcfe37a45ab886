"""Recordings of agents of other libraries."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import cramerl
from cramerl.measures import clipped_mass
from cramerl.watching.phenomena import scores, strongest_steps
from cramerl.watching.recorder import Recorder

ATOMS = np.linspace(-2, 2, 5)
LEFT, RIGHT = [0.1, 0.2, 0.4, 0.2, 0.1], [0.0, 0.0, 0.5, 0.5, 0.0]


def make(support=ATOMS, **settings):
    return Recorder("mine", support, **{"discount": 0.5} | settings)


def add(recorder, number=1, *, reward=1.0, action=0, probs=(LEFT, RIGHT), **ends):
    for _ in range(number):
        recorder.step([0.1, -2.0], action, reward, probs, **ends)


def test_a_recording_is_what_was_handed_over():
    recorder = make(env="a game", actions=["left", "right"])
    recorder.step([0.0, 1.0], 0, 1.0, [LEFT, RIGHT])
    recorder.step([1.0, 1.0], 1, 0.0, [RIGHT, LEFT])
    recorder.step([2.0, 1.0], 1, 2.0, [LEFT, LEFT], terminated=True)
    made = recorder.recording()
    assert (made.title, made.actions, repr(recorder)) == (
        "mine on a game",
        ["left", "right"],
        "Recorder(mine: 3 steps in 1 episode)",
    )
    np.testing.assert_array_equal(made.action, [0, 1, 1])
    np.testing.assert_array_equal(made.score, [0, 1, 1])
    np.testing.assert_array_equal(made.realised, [1.5, 1, 2])
    np.testing.assert_allclose(made.views[0].distributions[1], [RIGHT, LEFT])
    np.testing.assert_allclose(made.views[0].values, [[0, 0.5], [0.5, 0], [0, 0]], atol=1e-6)
    support = cramerl.Support(ATOMS)
    follows = [clipped_mass(support, np.float64(r), np.float64(d), np.array(q)) for r, d, q in made_steps()]
    np.testing.assert_allclose(made.views[0].clipped, follows, atol=1e-6)
    assert made.facts == ["score 3 after 3 steps (the episode ended)"]
    assert not np.array_equal(made.tape[0], made.tape[2])


def made_steps():
    """Reward, discount and the favourite's distribution of the next step, for the recording above."""
    return [(1.0, 0.5, RIGHT), (0.0, 0.5, LEFT), (2.0, 0.0, LEFT)]


def test_episodes_and_the_best_of_them():
    recorder = make()
    add(recorder, 2, reward=1.0)
    add(recorder, truncated=True)
    add(recorder, 3, reward=5.0)
    add(recorder, terminated=True)
    add(recorder)
    made = recorder.recording()
    np.testing.assert_array_equal(made.episode, [0, 0, 0, 1, 1, 1, 1, 2])
    np.testing.assert_array_equal(made.score, [0, 1, 2, 0, 5, 10, 15, 0])
    assert made.facts == ["3 episodes of 8 steps in all, with scores from 1 to 16"]
    np.testing.assert_array_equal(np.isnan(made.views[0].clipped), [0, 0, 1, 0, 0, 0, 0, 1])  # what follows is unseen
    best = recorder.recording("best")
    np.testing.assert_array_equal(best.reward, [5, 5, 5, 1])
    np.testing.assert_array_equal(best.score, [0, 5, 10, 15])
    assert best.cut is not None
    assert not best.cut.any()
    assert len(recorder.recording(0)) == 3
    recorder.clear()
    assert (len(recorder), recorder.num_episodes) == (0, 0)


def test_the_strongest_step_is_found_by_the_measures_of_the_page(tmp_path):
    recorder = make()
    add(recorder, 20)
    add(recorder, probs=([-0.5, 0.5, 0.5, 0.5, 0.0], RIGHT))
    add(recorder, 5)
    assert strongest_steps(scores(recorder.recording())["double-negative"]) == [20]
    data = saved(recorder, tmp_path / "page.html", highlight="double-negative")
    assert data["open"] == 20


def saved(recorder, path, **settings):
    """The data in the page."""
    text = recorder.save(path, **settings).read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    return json.loads(re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)[0])


def test_quantiles(tmp_path):
    recorder = make(None)
    add(recorder, 3, probs=[[3.0, 1.0, 2.0], [0.0, 0.0, 6.0]])
    (view,) = recorder.recording().views
    assert view.kind == "quantiles"
    np.testing.assert_array_equal(view.values, [[2, 2]] * 3)
    assert saved(recorder, tmp_path / "page.html")["views"][0]["kind"] == "quantiles"
    with pytest.raises(
        ValueError, match=r"distributions must have the shape of the first ones, \(2, 3\), got \(2, 4\)"
    ):
        add(recorder, probs=np.zeros((2, 4)))


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_arrays_of_other_libraries(library):
    recorder, numpy_recorder = make(), make()
    add(numpy_recorder, terminated=True)
    if library == "torch":
        torch = pytest.importorskip("torch")
        probs = torch.tensor([LEFT, RIGHT], requires_grad=True)
        numbers = [torch.tensor(x) for x in ([0.1, -2.0], [0], 1.0)]
        recorder.step(numbers[0], numbers[1], numbers[2], probs, terminated=torch.tensor(True))
        recorder.step(numbers[0], numbers[1], numbers[2], probs.to(torch.bfloat16))
        make(torch.linspace(-2, 2, 5))
    else:
        import jax
        import jax.numpy as jnp

        probs = jnp.array([LEFT, RIGHT])
        numbers = [jnp.array(x) for x in ([0.1, -2.0], [0], 1.0)]
        recorder.step(numbers[0], numbers[1], numbers[2], probs, terminated=jnp.array(True))
        recorder.step(numbers[0], numbers[1], numbers[2], probs.astype(jnp.bfloat16))
        with pytest.raises(ValueError, match="distributions must be an array of real numbers that can be read, got"):
            jax.jit(lambda traced: recorder.step([0.1, -2.0], 0, 1.0, traced))(probs)
    wanted, made = numpy_recorder.recording(), recorder.recording()
    np.testing.assert_allclose(made.views[0].distributions[0], wanted.views[0].distributions[0], rtol=1e-6)
    np.testing.assert_allclose(made.views[0].distributions[1], wanted.views[0].distributions[0], atol=2e-3)
    np.testing.assert_array_equal(made.tape[0], wanted.tape[0])
    np.testing.assert_array_equal(made.episode, [0, 1])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"distributions": [LEFT]}, r"distributions must have shape \(2, 5\), 2 actions and 5 atoms, got \(1, 5\)$"),
        (
            {"distributions": [LEFT[:4]] * 2},
            r"distributions must have shape \(2, 5\), 2 actions and 5 atoms, got \(2, 4\)$",
        ),
        ({"distributions": [[LEFT, RIGHT]]}, r"got \(1, 2, 5\); of a batch of one, hand over its first element"),
        ({"distributions": [[np.nan] * 5] * 2}, r"distributions must be finite and at most 1e\+30 in size, got nan"),
        ({"distributions": [[1e39] * 5] * 2}, r"distributions must be finite and at most 1e\+30 in size, got 1e\+39"),
        ({"reward": 1e39}, r"reward must be at most 1e\+30 in size, got 1e\+39"),
        ({"distributions": "probs"}, "distributions must be an array of real numbers that can be read, got str"),
        ({"action": 2}, "action must be an integer from 0 to 1, got 2"),
        ({"action": 0.5}, "action must be an integer from 0 to 1, got 0.5"),
        ({"action": [0, 1]}, r"action must be one number, got shape \(2,\)"),
        ({"reward": np.inf}, "reward must be a finite number, got inf"),
        ({"terminated": [True, False]}, r"terminated must be one number, got shape \(2,\)"),
        ({"observation": [1.0]}, r"observation must have the shape of the first one, \(2,\), got \(1,\)"),
        ({"observation": [np.nan, 1]}, "observation must be finite"),
    ],
)
def test_a_bad_step_is_a_sentence_and_is_not_recorded(changed, words):
    recorder = make()
    add(recorder)
    good = {"observation": [0.1, -2.0], "action": 0, "reward": 1.0, "distributions": [LEFT, RIGHT]}
    with pytest.raises(ValueError, match=words):
        recorder.step(**good | changed)
    assert len(recorder) == len(recorder.recording()) == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"support": [1.0, 0.0]},
            "support must be a Support, its atoms, or None for quantiles: atoms must be strictly",
        ),
        ({"support": [-1e300, 1e300]}, r"support must be at most 1e\+30 in size"),
        ({"discount": 1.5}, r"discount must lie in \[0, 1\], got 1.5"),
        ({"actions": "left"}, "actions must be a list of names, got 'left'"),
        ({"max_megabytes": -1}, "max_megabytes must be a finite number >= 0, got -1"),
    ],
)
def test_bad_settings_are_a_sentence(settings, words):
    with pytest.raises(ValueError, match=words):
        make(**settings)


def test_what_cannot_be_saved_is_a_sentence(tmp_path):
    recorder = make()
    with pytest.raises(ValueError, match="the recorder holds no step yet"):
        recorder.save(tmp_path / "page.html")
    add(recorder, 2, terminated=True)
    for settings, words in (
        ({"episode": 2}, "episode must be an integer >= 0 and <= 1, got 2"),
        ({"episode": "worst"}, "episode must be an integer, 'best' or None, got 'worst'"),
        ({"highlight": "disagreement"}, "highlight must be one of double-negative, compensation, noise, got"),
    ):
        with pytest.raises(ValueError, match=words):
            recorder.save(tmp_path / "page.html", **settings)
    with pytest.raises(ValueError, match=r"path must be a file that ends in .html, .htm, got"):
        recorder.save(tmp_path / "page.pdf")
    mine = tmp_path / "mine.html"
    mine.write_text("mine")
    with pytest.raises(
        ValueError, match=r"^path must be a new file or one that cramerl watch wrote, .*overwrite=True$"
    ):
        recorder.save(mine)
    assert mine.read_text() == "mine"
    recorder.save(mine, overwrite=True)
    recorder.save(mine)


def test_memory_is_bounded():
    recorder = make(max_megabytes=0.1)
    with pytest.raises(ValueError, match=r"max_megabytes must hold the recording, but 0.1 MB are full after \d+ steps"):
        add(recorder, 1000)
    assert 3 < len(recorder) < 40
    assert len(recorder.recording()) == len(recorder)
    recorder.clear()
    add(recorder)


@pytest.mark.parametrize(
    ("observation", "size"),
    [
        (np.zeros((6, 8, 3), np.uint8) + 200, (6, 8)),
        (np.zeros((3, 6, 8), np.float32), (6, 8)),
        (np.zeros((4, 6, 8), np.uint8) + 7, (6, 8)),
        (np.eye(6), (6, 6)),
        (np.ones((6, 8, 5), bool), (6, 8)),
    ],
)
def test_pictures_of_several_shapes(observation, size):
    recorder = make()
    recorder.step(observation, 0, 0.0, [LEFT, RIGHT])
    assert recorder.recording().tape.size == size


def test_the_last_of_a_stack_is_shown():
    recorder = make()
    recorder.step(np.stack([np.full((6, 8), value, np.uint8) for value in (9, 99, 199, 255)]), 0, 0.0, [LEFT, RIGHT])
    assert (recorder.recording().picture(0) == 255).all()


def test_pictures_that_cannot_be_drawn_are_a_sentence():
    for observation, words in (
        (np.zeros((2, 2, 2, 2)), r"observation must be a vector, a picture .* got shape \(2, 2, 2, 2\)"),
        (np.full((6, 8), -1.0), "observation must be a picture of uint8 or of numbers in"),
    ):
        with pytest.raises(ValueError, match=words):
            make().step(observation, 0, 0.0, [LEFT, RIGHT])


def test_cartpole_is_drawn_as_a_cart():
    recorder = make(env="CartPole-v1")
    recorder.step([0.0, 0.0, 0.1, 0.0], 0, 1.0, [LEFT, RIGHT])
    assert recorder.recording().tape.size == (240, 480)


def test_it_needs_no_library_of_agents(tmp_path):
    script = f"""
import sys
import cramerl
recorder = cramerl.Recorder("mine", [0, 1], discount=0.9)
recorder.step([0.5], 0, 1.0, [[0.5, 0.5]], terminated=True)
recorder.save({str(tmp_path / "page.html")!r})
assert not {{"jax", "gymnasium", "optax", "torch", "matplotlib"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert (tmp_path / "page.html").is_file()
