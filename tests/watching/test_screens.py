"""Pictures of environments, and names of actions."""

from types import SimpleNamespace

import gymnasium
import numpy as np

from cramerl.deep.envs.base import EnvSpec
from cramerl.runs.presets import preset
from cramerl.watching import drawings, screens


def spec(name, shape, dtype="float32", **settings):
    return EnvSpec(name, "gymnax", 3, shape, dtype, **settings)


def test_channels_are_drawn_in_the_order_of_the_legend():
    draw, legend, _ = screens._drawing(spec("Breakout-MinAtar", (10, 10, 4), "uint8"))
    frame = np.zeros((10, 10, 4), np.uint8)
    frame[9, 3, 0] = frame[5, 5, 1] = frame[5, 5, 2] = frame[1, :, 3] = 1
    drawn, names = draw(frame), {tuple(bytes.fromhex(colour[1:])): name for name, colour in legend}
    assert [names[tuple(drawn[cell])] for cell in ((9, 3), (5, 5), (1, 0))] == ["paddle", "ball", "brick"]
    assert tuple(drawn[0, 0]) not in names


def test_every_shape_of_frame_has_a_picture(rng):
    for one, size in (
        (spec("CartPole-v1", (4,)), (240, 480, 3)),
        (spec("LunarLander-v3", (8,)), (120, 192, 3)),
        (spec("Other-v0", (5, 6, 12)), (5, 6, 3)),
        (spec("Car-v0", (20, 30, 3), "uint8", frame_scale=255.0), (20, 30, 3)),
        (spec("Gray-v0", (20, 30, 1), "uint8", frame_scale=255.0), (20, 30, 3)),
        (spec("Catch-bsuite", (10, 5)), (10, 5, 3)),
    ):
        draw, _, _ = screens._drawing(one)
        drawn = draw(rng.integers(0, 2, one.frame_shape).astype(one.frame_dtype))
        assert drawn.shape == size
        assert drawn.dtype == np.uint8
        assert len(np.unique(drawn)) > 1
    assert drawings.draw_gray(np.eye(10, 5, dtype=np.float32), 1.0).max() == 255


def test_the_cart_is_at_its_position_and_its_pole_leans():
    def columns(frame, colour, rows=slice(None)):
        return np.argwhere((drawings.draw_cart(np.array(frame))[rows] == colour).all(axis=-1))[:, 1].mean()

    assert columns([-2.0, 0, 0, 0], drawings.BLUE) < 100
    assert columns([2.0, 0, 0, 0], drawings.BLUE) > 380
    assert columns([0.0, 0, 0.2, 0], drawings.ORANGE, slice(0, 60)) > 250


def test_a_palette_keeps_colours_and_uses_the_nearest_beyond_256():
    palette = drawings.Palette()
    few = np.array([[[1, 2, 3], [200, 0, 9]], [[1, 2, 3], [4, 5, 6]]], np.uint8)
    indices = palette.indices(few)
    np.testing.assert_array_equal(palette.colours[indices], few)
    many = np.stack(np.meshgrid(np.arange(20), np.arange(20), [0]), axis=-1)[:, :, 0].astype(np.uint8) * 12
    many_indices = palette.indices(many)
    shown = palette.colours[many_indices]
    assert len(palette.colours) == 256
    assert abs(shown.astype(int) - many).max() <= 228
    np.testing.assert_array_equal(palette.indices(few), indices)


def test_atari_is_in_colour_and_in_step_with_what_the_agent_sees():
    config = preset("smoke", "s51", "pong", sticky=0.25)
    env = screens.FilmedEnv(config)
    try:
        names = ["no-op", "fire", "right", "left", "right fire", "left fire"]
        assert screens.action_names(config, env.spec) == names
        frame = env.reset(3)[0]
        for i in range(60):
            frame = env.step(np.array([2 + i % 2], np.int32)).frames[0]
        rgb = env.palette.colours[env.picture].astype(float)
    finally:
        env.close()
    # Compared in blocks: the agent's frame is resized, which changes edges a little.
    blocks = (rgb @ [0.299, 0.587, 0.114]).reshape(7, 30, 4, 40).mean(axis=(1, 3))
    seen = frame.astype(float).reshape(7, 12, 4, 21).mean(axis=(1, 3))
    np.testing.assert_allclose(blocks, seen, atol=3)
    assert not np.all(env.palette.colours[:, 0] == env.palette.colours[:, 2])  # not gray


class Painter(gymnasium.Env):
    """Draws how many steps it has taken."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1}  # noqa: RUF012 - as Gymnasium declares it
    action_space, observation_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Box(-1, 1, (3,))

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(3, np.float32), 1.0, False, False, {}

    def render(self):
        return np.full((4, 6, 3), self.steps, np.uint8)


def test_an_environment_that_draws_itself_is_shown_so():
    gymnasium.register("Painter-v0", Painter, max_episode_steps=5)
    env = screens.FilmedEnv(preset("smoke", "s51", "gym:Painter-v0"))
    env.reset(0)
    for steps in (1, 2):
        env.step(np.zeros(1, np.int32))
        np.testing.assert_array_equal(env.palette.colours[env.picture], np.full((4, 6, 3), steps))
    env.close()


def test_an_environment_that_cannot_be_drawn_is_shown_by_its_numbers(monkeypatch):
    monkeypatch.setattr(Painter, "metadata", {"render_modes": []})
    gymnasium.register("Blind-v0", Painter, max_episode_steps=5)
    env = screens.FilmedEnv(preset("smoke", "s51", "gym:Blind-v0"))
    env.reset(0)
    assert env.picture.shape == (120, 72)
    assert "bars" in env.caption
    env.close()


def test_names_of_actions():
    cart = spec("CartPole-v1", (4,))._replace(num_actions=2)
    assert screens.action_names(SimpleNamespace(), cart) == ["push left", "push right"]
    assert screens.action_names(SimpleNamespace(), spec("Other-v0", (4,))) == ["action 0", "action 1", "action 2"]
