"""From a recording to a page, a picture and a video: what is packed is what was recorded."""

import base64
import json
import re
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from cramerl.watch.tape import Tape
from watch_recordings import make_recording

from cramerl import measures
from cramerl.deep import heads
from cramerl.deep.envs.base import EnvSpec
from cramerl.supports import Support
from cramerl.watch import packing, page, picture, process, recording, screens, video
from cramerl.watch.packing import pack, pack_distributions


def unpack_distributions(chunks, size):
    """What the page's script does, in Python."""
    rows = []
    for _, steps, text in chunks:
        planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(2, -1)
        whole = (planes[0].astype(np.uint16) | planes[1].astype(np.uint16) << 8).view(np.int16).reshape(steps, size)
        rows.append(np.cumsum(whole, axis=0, dtype=np.int16))
    return np.concatenate(rows)


def unpack_floats(text):
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(4, -1)
    return np.ascontiguousarray(planes.T).view("<f4").ravel()


@pytest.mark.parametrize("count", [1, 16, 700])
def test_a_tape_gives_back_its_pictures(count, rng):
    pictures = rng.integers(0, 5, (count, 40, 50), dtype=np.uint8)
    tape = Tape((40, 50), start=7)
    for one in pictures:
        tape.append(one)
    for i in {0, count // 2, count - 1}:
        np.testing.assert_array_equal(tape[i], pictures[i])
    chunks = tape.chunks()
    assert [chunk.start for chunk in chunks] == list(np.cumsum([7, *(chunk.steps for chunk in chunks)])[:-1])
    assert len(tape) == count
    np.testing.assert_array_equal(np.stack([tape[i] for i in range(count)]), pictures)
    with pytest.raises(ValueError, match="picture must be uint8 of shape"):
        Tape((2, 2)).append(np.zeros((2, 3), np.uint8))


def test_packed_numbers_are_the_recorded_ones():
    made = make_recording(views=("s51", "c51", "qr"))
    packed = json.loads(json.dumps(pack(made), allow_nan=False))
    for view, sent in zip(made.views, packed["views"], strict=True):
        distributions = unpack_distributions(sent["distributions"], 3 * sent["places"]) * sent["precision"]
        np.testing.assert_allclose(
            distributions.reshape(view.distributions.shape), view.distributions, atol=0.51 * sent["precision"]
        )
        np.testing.assert_array_equal(unpack_floats(sent["numbers"]["values"]).reshape(-1, 3), view.values)
        np.testing.assert_array_equal(unpack_floats(sent["numbers"]["negative"]), view.negative)
    assert packed["views"][0]["precision"] == 1e-4
    np.testing.assert_array_equal(unpack_floats(packed["numbers"]["came"]), made.came)


def test_distributions_wrap_around_and_back_and_are_cut_at_what_16_bits_hold():
    distributions = np.array([3.2, -3.2, 3.2, 9.0]).reshape(4, 1, 1)
    chunks = [(one.start, one.steps, base64.b64encode(one.data)) for one in pack_distributions(distributions, 1e-4)]
    np.testing.assert_allclose(unpack_distributions(chunks, 1).ravel() * 1e-4, [3.2, -3.2, 3.2, 3.2767], atol=1e-6)
    made = make_recording(views=("c51",))
    large = made.views[0]._replace(distributions=made.views[0].distributions * 50)
    sent = pack(recording.Recording(**{**vars(made), "views": [large]}))["views"][0]
    assert 32_767 * sent["precision"] > large.distributions.max()


def test_a_page_of_little_room_is_coarser():
    made = make_recording(2000, views=("s51",))
    sent = pack(made, room=300_000)
    assert sent["views"][0]["precision"] > 1e-4
    assert sum(len(chunk[2]) for chunk in sent["views"][0]["distributions"]) < 100_000


def test_where_rounding_is_not_enough_a_distribution_stands_for_several_steps():
    made = make_recording(2000, views=("s51", "c51", "dqn"), actions=6)
    sent = pack(made, room=700_000, exact=[17, 1234])
    assert len(json.dumps(sent)) < 700_000
    s51, c51, _ = sent["views"]
    assert [view["name"] for view in sent["views"]] == ["s51", "c51", "dqn"]
    (words,) = [words for words in sent["facts"] if words.startswith("bars of s51 every ")]
    every = int(words.split()[4])
    assert not any("dqn" in words for words in sent["facts"])  # small as it is, it fits
    for view, one in ((made.views[0], s51), (made.views[1], c51)):
        distributions = (
            unpack_distributions(one["distributions"], 66).reshape(view.distributions.shape) * one["precision"]
        )
        for step in (0, every, 17, 1234):
            np.testing.assert_allclose(distributions[step], view.distributions[step], atol=0.51 * one["precision"])
    distributions = unpack_distributions(s51["distributions"], 66)
    held = [step for step in range(2000) if step % every and step not in (17, 1234)]
    np.testing.assert_array_equal(distributions[held], distributions[np.array(held) - 1])


def test_a_sample_that_misjudges_does_not_break_the_limit(rng):
    made = make_recording(8000, views=("c51",))
    distributions = rng.normal(0, 0.1, (8000, 3, 11)).astype(np.float32)
    distributions.reshape(8, 1000, 33)[:, :256] = 0  # just where the sample is taken
    view = made.views[0]._replace(distributions=distributions)
    sent = pack(recording.Recording(**{**vars(made), "views": [view]}), room=450_000)
    assert len(json.dumps(sent)) < 450_000


def test_pictures_that_flicker_too_much_are_thinned(rng):
    pictures = rng.integers(0, 256, (100, 40, 50), dtype=np.uint8)
    tape = Tape((40, 50))
    for one in pictures:
        tape.append(one)
    chunks, every = packing.thin_pictures(tape, 0, 100_000)
    assert every == 4
    assert 4 * sum(len(chunk.data) for chunk in chunks) / 3 < 100_000
    shown = np.frombuffer(zlib.decompress(chunks[0].data), np.uint8).reshape(-1, 40, 50)
    np.testing.assert_array_equal(np.bitwise_xor.accumulate(shown, axis=0)[:9], pictures[[0, 0, 0, 0, 4, 4, 4, 4, 8]])
    assert packing.thin_pictures(tape, 0, 1_000_000)[1] == 1


def test_the_page_holds_everything_and_asks_for_nothing(tmp_path):
    path = page.write_page(make_recording(), tmp_path / "deep" / "page.html", highlight="double-negative")
    text = path.read_text(encoding="utf-8")
    assert "agents &lt;on&gt; a game" in text
    assert "{{" not in text
    assert not re.search(r"""(src|href)=["'](?!data:)""", text)
    assert "default-src 'none'" in text
    (found,) = re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)
    data = json.loads(found)
    assert data["open"] == data["found"]["double-negative"]["steps"][0] == 17
    with pytest.raises(ValueError, match="disagreement needs two runs"):
        page.page_data(make_recording(views=("s51",)), highlight="disagreement")


def test_a_name_cannot_end_the_script(tmp_path):
    made = make_recording()
    made.facts.append("</script><script>alert(1)</script>")
    assert "<script>alert" not in page.to_html(page.page_data(made))


def test_predictions_that_are_not_finite_are_refused():
    distributions = np.full((1, 2, 3), np.nan)
    with pytest.raises(ValueError, match="s51 predicts numbers that are not finite"):
        recording.make_view("s51", "s51", np.arange(3.0), distributions, np.zeros((1, 2)), np.zeros(1, int))


def test_the_returns_that_came():
    rewards, no = np.array([1.0, 0, 2, 1, 5]), np.zeros(5, bool)
    ended = np.array([0, 0, 1, 0, 0], bool)
    came = recording.realised_returns(rewards, ended, np.array([0, 0, 1, 0, 1], bool), 0.5)
    np.testing.assert_allclose(came, [1.5, 1, 2, np.nan, np.nan])
    assert np.isnan(recording.realised_returns(rewards, no, np.array([0, 0, 0, 0, 1], bool), 0.5)).all()


def test_clipped_mass_is_the_learner_s(rng):
    head = heads.C51(Support.uniform(-1, 1, 7))
    outputs = rng.normal(size=(20, 7)).astype(np.float32)
    rewards, discounts = rng.normal(size=20).astype(np.float32), rng.random(20).astype(np.float32)
    masses = np.asarray(head.distribution(outputs)[1])
    np.testing.assert_allclose(
        recording.clipped_mass(head.support.atoms, rewards, discounts, masses),
        measures.clipped_mass(head.support, rewards, discounts, masses),
        atol=1e-6,
    )


def spec(name, shape, dtype="float32", **settings):
    return EnvSpec(name, "gymnax", 3, shape, dtype, **settings)


def test_channels_are_drawn_in_the_order_of_the_legend():
    screen = screens.make_screen(None, spec("Breakout-MinAtar", (10, 10, 4), "uint8"))
    frame = np.zeros((10, 10, 4), np.uint8)
    frame[9, 3, 0] = frame[5, 5, 1] = frame[5, 5, 2] = frame[1, :, 3] = 1
    drawn = screen.draw(frame)
    names = {index: name for name, index in screen.legend}
    assert (names[drawn[9, 3]], names[drawn[5, 5]], names[drawn[1, 0]]) == ("paddle", "ball", "brick")
    assert drawn[0, 0] == 0
    assert len(screen.palette) == 5


def test_every_shape_of_frame_has_a_picture(rng):
    kinds = {
        "CartScreen": spec("CartPole-v1", (4,)),
        "BarsScreen": spec("LunarLander-v3", (8,)),
        "ChannelScreen": spec("Other-v0", (5, 6, 12)),
        "ColourScreen": spec("Car-v0", (20, 30, 3), "uint8", frame_scale=255.0),
        "GrayScreen": spec("Gray-v0", (20, 30, 1), "uint8", frame_scale=255.0),
    }
    for name, one in kinds.items():
        screen = screens.make_screen(None, one)
        assert type(screen).__name__ == name
        frame = rng.integers(0, 2, one.frame_shape).astype(one.frame_dtype)
        drawn = screen.start(0, frame)
        assert drawn.shape == screen.size
        assert drawn.dtype == np.uint8
        assert drawn.max() < len(screen.palette)
    grid = screens.make_screen(None, spec("Catch-bsuite", (10, 5)))
    assert grid.draw(np.eye(10, 5, dtype=np.float32)).max() == 255


def test_the_cart_stands_where_it_is_and_its_pole_leans():
    screen = screens.CartScreen()
    left, right = screen.draw(np.array([-2.0, 0, 0, 0])), screen.draw(np.array([2.0, 0, 0, 0]))
    assert np.argwhere(left == 2)[:, 1].mean() < 100 < 380 < np.argwhere(right == 2)[:, 1].mean()
    leaning = np.argwhere(screen.draw(np.array([0.0, 0, 0.2, 0])) == 6)
    assert leaning[leaning[:, 0] < 60][:, 1].mean() > 250


def test_atari_is_drawn_in_its_colours_in_step_with_what_the_agent_sees():
    from cramerl.runs.build import make_envs
    from cramerl.runs.presets import preset

    config = preset("smoke", "s51", "pong", sticky=0.25)
    envs = make_envs(config, 1)
    try:
        screen = screens.make_screen(config, envs.spec)
        assert screens.action_names(config, envs.spec)[:3] == ["no-op", "fire", "right"]
        frame = envs.reset(3)[0]
        drawn = screen.start(3, frame)
        for i in range(60):
            frame = envs.step(np.array([2 + i % 2], np.int32)).frames[0]
            drawn = screen.after(2 + i % 2, frame)
        rgb = screen.palette[drawn].astype(float)
        gray = rgb @ [0.299, 0.587, 0.114]
        # Both are blurred to blocks: resizing differs a little at edges.
        blocks = gray[:210, :].reshape(7, 30, 4, 40).mean(axis=(1, 3))
        seen = frame.astype(float).reshape(7, 12, 4, 21).mean(axis=(1, 3))
        np.testing.assert_allclose(blocks, seen, atol=3)
    finally:
        envs.close()
    assert not np.all(screen.palette[:, 0] == screen.palette[:, 2])  # not gray
    many = np.stack(np.meshgrid(np.arange(20), np.arange(20), [0]), axis=-1)[:, :, 0].astype(np.uint8) * 12
    drawn = screen.draw(many)
    shown = screen.palette[drawn]
    assert len(screen.palette) == 256
    assert abs(shown.astype(int) - many).max() <= 228  # the nearest of what fits, for colours that do not


def test_words_for_actions():
    assert screens._words("UPRIGHTFIRE") == "up right fire"
    assert screens._words("NOOP") == "no-op"
    assert screens.action_names(SimpleNamespace(), spec("CartPole-v1", (4,)))[0] == "push left"
    assert screens.action_names(SimpleNamespace(), spec("Other-v0", (4,))) == ["action 0", "action 1", "action 2"]


def test_the_distributions_of_a_picture_have_one_scale():
    figure = picture._figure(make_recording(views=("s51", "qr")), 17)
    _, left, right = figure.axes
    assert left.get_xlim() == right.get_xlim()
    assert left.get_xlim()[0] < -10


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_a_picture_of_two_agents(tmp_path, suffix):
    path = picture.write_picture(make_recording(views=("s51", "qr")), 17, tmp_path / f"figure{suffix}")
    assert path.stat().st_size > 5000


def test_a_picture_of_no_step_or_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match="--picture must be a step from 0 to 39, got 40"):
        picture.write_picture(make_recording(), 40, tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"--picture-out must be a file that ends in .pdf, .png, .svg, got .*a.jpg"):
        picture.write_picture(make_recording(), 4, tmp_path / "a.jpg")
    with pytest.raises(ValueError, match=r"--video must be a file that ends in .mp4, .gif, got .*a.avi"):
        video.write_video(make_recording(), tmp_path / "a.avi")


def test_a_video_has_a_frame_for_each_step(tmp_path):
    av, image = pytest.importorskip("av"), pytest.importorskip("PIL.Image")
    made = make_recording(views=("s51", "dqn"))
    with av.open(str(video.write_video(made, tmp_path / "a.mp4", fps=30))) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert container.streams.video[0].average_rate == 30
    assert len(frames) == 40
    with image.open(video.write_video(made, tmp_path / "a.gif")) as moving:
        assert moving.n_frames == 40
        moving.seek(17)
        still = np.asarray(moving.convert("RGB")).astype(int)
    orange = abs(still - [0xD5, 0x5E, 0]).sum(axis=-1) < 30
    assert orange.sum() > 300  # the negative bars
    assert abs(frames[17].astype(int) - still).mean() < 6


def test_states_of_an_evaluation(tmp_path):
    from cramerl.evaluations import write_evaluation
    from cramerl.linear import evaluate, suggest_support, tabular
    from cramerl.linear.examples import random_walk

    walk = random_walk(discount=0.9)
    found = evaluate(walk, tabular(walk.num_states), suggest_support(walk, 21))
    write_evaluation(found, tmp_path)
    made = process.read_evaluation(tmp_path)
    assert made.unit == "state"
    assert len(made) == walk.num_states
    np.testing.assert_allclose(made.views[0].distributions[:, 0], found.masses, atol=1e-5)
    np.testing.assert_allclose(made.score, found.values, rtol=1e-5, atol=1e-6)
    assert (made.tape[2] == 2).any()
    page.write_page(made, tmp_path / "page.html")


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
    made = process.read_evaluation(tmp_path)
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
            process.read_evaluation(tmp_path)
    distributions = {"states": [0], "means": [0], "visited": [1], "masses": [[1, 2, 3]]}
    (tmp_path / "evaluation.json").write_text(
        json.dumps({"support": [0, 1], "normalisation": "before", "distributions": distributions})
    )
    with pytest.raises(ValueError, match=r"distributions must be \(states, 2\) numbers, got \(1, 3\)"):
        process.read_evaluation(tmp_path)


def colours_of_the_page():
    """The variables of the style sheet, in light and in dark."""
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\}", page._read("page.css"), re.DOTALL)
    )
    return {"light": light, "dark": light | dark}


def contrast(one, other):
    """The ratio of WCAG 2: 1 for one colour, 21 for black on white."""

    def brightness(colour):
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        return np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    dim, bright = sorted((brightness(one), brightness(other)))
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_stand_out_as_accessibility_asks(scheme):
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    colours = colours_of_the_page()[scheme]
    for ground in (colours["ground"], colours["card"]):
        for text in ("ink", "soft", "negative-text"):
            assert contrast(colours[text], ground) >= 4.5, text
        for shape in ("positive", "negative", "came", "second", "fourth", "focus"):
            assert contrast(colours[shape], ground) >= 3, shape
    assert contrast(colours["on-problem"], colours["negative-text"]) >= 4.5
    assert not re.search(r"color: #|stroke: #|fill: #", page._read("page.css"))  # none beside the variables


@pytest.mark.slow
@pytest.mark.parametrize("actions", [6, 18])
def test_two_noisy_agents_for_the_length_of_an_atari_episode_stay_under_25_mb(tmp_path, rng, actions):
    """27,000 steps, distributions of which every mass is new at each step: harder to pack than any agent's."""
    steps, atoms = 27_000, np.linspace(-10, 10, 51)
    made = make_recording(1)
    tape, shown = Tape((210, 160)), rng.integers(0, 3, (210, 160), dtype=np.uint8)
    for t in range(steps):
        shown[t % 210, :4] = t % 3
        tape.append(shown)
    action, nothing = rng.integers(0, actions, steps).astype(np.int32), np.zeros(steps, np.float32)
    noisy = []
    for name in ("a", "b"):
        distributions = 0.02 + 0.03 * rng.standard_normal((steps, actions, 51), np.float32)
        noisy.append(recording.make_view(name, name, atoms, distributions, rng.random((steps, actions)), action))
    columns = {"action": action, "reward": nothing, "score": nothing, "episode": action * 0, "came": nothing}
    names = [f"action {i}" for i in range(actions)]
    long = recording.Recording(**{**vars(made), **columns, "tape": tape, "views": noisy, "actions": names})
    path = page.write_page(long, tmp_path / "long.html")
    assert 5e6 < path.stat().st_size < 25e6
