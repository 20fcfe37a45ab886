"""Pictures of what an agent sees: arrays of palette indices, so that a page, a video and a figure draw the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cramerl.deep.envs.names import game_name

if TYPE_CHECKING:
    from cramerl.deep.envs.base import EnvSpec
    from cramerl.runs.config import TrainConfig

# Okabe and Ito's colours, then tints of them, for what a MinAtar channel shows.
_COLOURS = (
    "#56B4E9",
    "#E69F00",
    "#8C8C8C",
    "#009E73",
    "#CC79A7",
    "#F0E442",
    "#D55E00",
    "#0072B2",
    "#B5E3CF",
    "#F4CFE0",
)
_GROUND, _MARK, _SOFT = "#16191d", "#E69F00", "#4a5058"
# Channels of gymnax's games by name; where several hold a cell, the first in this order is drawn.
_CHANNELS: dict[str, dict[str, int]] = {
    "Asterix-MinAtar": {"player": 0, "enemy": 1, "gold": 3, "trail": 2},
    "Breakout-MinAtar": {"paddle": 0, "ball": 1, "trail": 2, "brick": 3},
    "Freeway-MinAtar": {"chicken": 0, "car": 1, **{f"speed {i}": i + 1 for i in range(1, 6)}},
    "Seaquest-MinAtar": {
        **{"submarine, front": 0, "submarine, back": 1, "our bullet": 2, "enemy bullet": 4, "fish": 5},
        **{"enemy submarine": 6, "diver": 9, "trail": 3, "oxygen": 7, "divers on board": 8},
    },
    "SpaceInvaders-MinAtar": {
        **{"cannon": 0, "our bullet": 4, "enemy bullet": 5},
        **{"aliens, going left": 2, "aliens, going right": 3, "alien": 1},
    },
    "Pong-misc": {"paddle": 0, "ball": 1, "trail": 2},
}
_MINATAR_ACTIONS = ("no-op", "left", "up", "right", "down", "fire")
_CART_ACTIONS = ("push left", "push right")


class Screen:
    """Draws frames.

    Attributes:
        size: height and width of a picture.
        palette: (P, 3) uint8, the colours that indices stand for; it may grow while playing.
        legend: what colours mean, as pairs of a name and an index.
        caption: what the picture is, in a few words.
    """

    size: tuple[int, int]
    palette: np.ndarray
    legend: list[tuple[str, int]]
    caption: str = ""

    def start(self, seed: int, frame: np.ndarray) -> np.ndarray:
        """The picture of an environment's first frame after ``reset(seed)``: (H, W) uint8."""
        return self.draw(frame)

    def after(self, action: int, frame: np.ndarray) -> np.ndarray:
        """The picture after an action that led to ``frame``."""
        return self.draw(frame)

    def draw(self, frame: np.ndarray) -> np.ndarray:
        """The picture of a frame."""
        raise NotImplementedError


class GrayScreen(Screen):
    """Frames of one brightness per pixel."""

    def __init__(self, spec: EnvSpec):
        self.size = (spec.frame_shape[0], spec.frame_shape[1])
        self.palette = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
        self.legend = []
        self._scale = 255.0 / spec.frame_scale
        self.caption = "what the agent sees, in gray"

    def draw(self, frame: np.ndarray) -> np.ndarray:
        """Brightness as index."""
        flat = frame if frame.ndim == 2 else frame[..., -1]
        return np.clip(np.asarray(flat, np.float32) * self._scale, 0, 255).astype(np.uint8)


class ColourScreen(Screen):
    """Frames of red, green and blue, in 8 x 8 x 4 steps."""

    def __init__(self, spec: EnvSpec):
        self.size = (spec.frame_shape[0], spec.frame_shape[1])
        index = np.arange(256)
        levels = [(index >> 5) * 255 // 7, (index >> 2 & 7) * 255 // 7, (index & 3) * 255 // 3]
        self.palette = np.stack(levels, axis=1).astype(np.uint8)
        self.legend = []

    def draw(self, frame: np.ndarray) -> np.ndarray:
        """The nearest step below."""
        return (frame[..., 0] & 0xE0) | (frame[..., 1] >> 5 << 2) | (frame[..., 2] >> 6)


class ChannelScreen(Screen):
    """Frames of zeros and ones in channels: each channel its colour."""

    def __init__(self, spec: EnvSpec):
        height, width, channels = spec.frame_shape
        names = _CHANNELS.get(spec.name) or {f"channel {i}": i for i in range(channels)}
        self.size = (height, width)
        self._order = [(index + 1, channel) for index, channel in enumerate(names.values()) if channel < channels]
        self.legend = [(name, index + 1) for index, name in enumerate(names)]
        colours = [_COLOURS[i % len(_COLOURS)] for i in range(len(names))]
        self.palette = _rgb(_GROUND, *colours)

    def draw(self, frame: np.ndarray) -> np.ndarray:
        """The first channel that holds a cell gives its colour."""
        picture = np.zeros(self.size, np.uint8)
        for index, channel in reversed(self._order):
            picture[frame[..., channel] > 0] = index
        return picture


class CartScreen(Screen):
    """CartPole: a cart on a track with its pole."""

    def __init__(self) -> None:
        self.size = (240, 480)
        self.palette = _rgb(
            _GROUND, _SOFT, "#56B4E9", "#4b3b16", "#805a10", "#b37c08", _MARK
        )  # the pole's edge is soft
        self.legend = []
        self._rows, self._columns = np.mgrid[: self.size[0], : self.size[1]].astype(np.float32)

    def draw(self, frame: np.ndarray) -> np.ndarray:
        """Position and angle as they are; the track ends where the episode would."""
        place, angle = float(frame[0]), float(frame[2])
        picture = np.zeros(self.size, np.uint8)
        rows, columns = 186 - self._rows, self._columns - (240 + place / 2.4 * 224)
        picture[200:203, 16:464] = 1
        picture[(abs(columns) <= 35) & (abs(rows) <= 14)] = 2
        along = columns * np.sin(angle) + rows * np.cos(angle)
        across = columns * np.cos(angle) - rows * np.sin(angle)
        cover = np.rint(np.clip(5.5 - abs(across), 0, 1) * 4).astype(np.uint8)
        pole = (along >= 0) & (along <= 150) & (cover > 0)
        picture[pole] = cover[pole] + 2
        return picture


class BarsScreen(Screen):
    """Vectors: a bar for each number, up for positive ones, squashed as x / (1 + |x|)."""

    def __init__(self, spec: EnvSpec):
        self._count = int(np.prod(spec.frame_shape))
        self._bar = max(2, min(24, 320 // self._count))
        self.size = (120, self._bar * self._count)
        self.palette = _rgb(_GROUND, _SOFT, "#56B4E9", "#E69F00")
        self.legend = []
        self.caption = "the observation's numbers as bars, x drawn as x / (1 + |x|)"

    def draw(self, frame: np.ndarray) -> np.ndarray:
        """Bars from the middle line."""
        values = np.ravel(np.asarray(frame, np.float32))
        heights = np.rint(values / (1 + abs(values)) * 56).astype(int)
        picture = np.zeros(self.size, np.uint8)
        for i, height in enumerate(heights):
            columns = slice(i * self._bar, max(i * self._bar + 1, (i + 1) * self._bar - 1))
            picture[min(60 - height, 60) : max(60 - height, 60), columns] = 2 if height > 0 else 3
        picture[60] = 1
        return picture


class AtariScreen(Screen):
    """The game's own colours, from a second emulator that is given the same seed and the same actions."""

    def __init__(self, config: TrainConfig):
        from ale_py.vector_env import AtariVectorEnv
        from gymnasium.vector import AutoresetMode

        self.size = (210, 160)
        self.legend, self.caption = [], "the game's screen; the agent sees it in gray, 84 x 84"
        self._codes = np.full(1 << 24, -1, np.int16)
        self._colours: list[int] = []
        self._envs: Any = AtariVectorEnv(
            game_name(config.env) or config.env,
            1,
            max_num_frames_per_episode=4 * config.max_episode_steps or 108_000,
            repeat_action_probability=config.sticky,
            full_action_space=config.full_action_space,
            autoreset_mode=AutoresetMode.NEXT_STEP,
            grayscale=False,
            img_height=self.size[0],
            img_width=self.size[1],
            stack_num=1,
            frameskip=4,
            maxpool=True,
            noop_max=config.noop_max,
            use_fire_reset=config.fire_reset,
            reward_clipping=False,
        )

    @property
    def palette(self) -> np.ndarray:  # type: ignore[override]
        """The colours seen so far."""
        codes = np.array(self._colours or [0])
        return np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1).astype(np.uint8)

    def start(self, seed: int, frame: np.ndarray) -> np.ndarray:
        """Start the second emulator as the first was."""
        from cramerl.deep.envs.base import env_seeds

        return self.draw(self._envs.reset(seed=env_seeds(seed, 1).astype(np.int64))[0][0, 0])

    def after(self, action: int, frame: np.ndarray) -> np.ndarray:
        """Step the second emulator."""
        return self.draw(self._envs.step(np.array([action], np.int32))[0][0, 0])

    def draw(self, frame: np.ndarray) -> np.ndarray:
        """Indices of colours; new ones are added until there are 256, then the nearest is taken."""
        wide = frame.astype(np.int32)
        codes = wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]
        picture = self._codes[codes]
        if (picture < 0).any():
            for code in np.unique(codes[picture < 0]).tolist():
                self._codes[code] = self._index(code)
            picture = self._codes[codes]
        return picture.astype(np.uint8)

    def _index(self, code: int) -> int:
        if len(self._colours) < 256:
            self._colours.append(code)
            return len(self._colours) - 1
        wanted = np.array([code >> 16, code >> 8 & 255, code & 255])
        return int(np.argmin(((self.palette.astype(int) - wanted) ** 2).sum(axis=1)))


def make_screen(config: TrainConfig, spec: EnvSpec) -> Screen:
    """The screen that fits an environment."""
    shape, picture = spec.frame_shape, spec.frame_scale == 255.0
    if spec.family == "atari":
        return AtariScreen(config)
    if spec.name.removeprefix("gym:") in ("CartPole-v0", "CartPole-v1") and shape == (4,):
        return CartScreen()
    if len(shape) == 3 and not picture:
        return ChannelScreen(spec)
    if len(shape) == 3 and shape[2] == 3:
        return ColourScreen(spec)
    if len(shape) in (2, 3):
        return GrayScreen(spec)
    return BarsScreen(spec)


def action_names(config: TrainConfig, spec: EnvSpec) -> list[str]:
    """What the actions do, in words where they are known."""
    numbered = [f"action {i}" for i in range(spec.num_actions)]
    if spec.family == "atari":
        from ale_py import Action, ALEInterface, LoggerMode, roms

        if config.full_action_space:
            return [_words(action) for action in Action.__members__][: spec.num_actions]
        ALEInterface.setLoggerMode(LoggerMode.Error)
        emulator = ALEInterface()
        emulator.loadROM(str(roms.get_rom_path(game_name(config.env) or "")))
        names = [_words(action.name) for action in emulator.getMinimalActionSet()]
        return names if len(names) == spec.num_actions else numbered
    if spec.name.removeprefix("gym:") in ("CartPole-v0", "CartPole-v1"):
        return list(_CART_ACTIONS)
    if spec.name.endswith("-MinAtar"):
        from cramerl.deep.envs.gymnax import GymnaxEnv

        chosen = getattr(GymnaxEnv(config.env)._env, "action_set", ())
        names = [_MINATAR_ACTIONS[int(i)] for i in chosen]
        return names if len(names) == spec.num_actions else numbered
    return numbered


def _words(name: str) -> str:
    """``UPRIGHTFIRE`` -> ``up right fire``."""
    for word in ("NOOP", "UP", "DOWN", "LEFT", "RIGHT", "FIRE"):
        name = name.replace(word, f"{word} ", 1)
    return name.strip().lower().replace("noop", "no-op")


def _rgb(*colours: str) -> np.ndarray:
    return np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours], np.uint8)
