"""Pictures of what an agent plays, and names of its actions.

Pictures are arrays of colour indices, so that a page, a video and a figure show the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from cramerl.deep.envs.base import EnvSpec, Step
from cramerl.deep.envs.names import env_family, game_name
from cramerl.runs import build
from cramerl.runs.config import TrainConfig
from cramerl.watching.drawings import BLACK, COLOURS, Palette, draw_bars, draw_cart, draw_channels, draw_gray

# Channels of gymnax's games by name. Where several are set in a cell, the first in this order is drawn.
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
        **{"aliens moving left": 2, "aliens moving right": 3, "alien": 1},
    },
    "Pong-misc": {"paddle": 0, "ball": 1, "trail": 2},
}
_MINATAR_ACTIONS = ("no-op", "left", "up", "right", "down", "fire")


class FilmedEnv:
    """One environment, as `HostEnvs` (N = 1), with a picture of its current state.

    Atari's colours come from a second emulator with the same settings, seed and actions: the agent's is gray.

    Attributes:
        spec: see `EnvSpec`.
        num_envs: 1.
        picture: (H, W) uint8, indices of the palette's colours.
        palette: the colours of all pictures so far.
        legend: what colours mean, as pairs of a name and a colour.
        caption: what the picture is, in a few words.

    Args:
        config: the settings.
        trust_modules: see `make_envs`.
    """

    num_envs = 1

    def __init__(self, config: TrainConfig, *, trust_modules: bool = False):
        family = env_family(config.env)
        self._envs = build.make_envs(config, 1, pictures=family == "gymnasium", trust_modules=trust_modules)
        self._colour_envs = build.make_envs(config, 1, pictures=True) if family == "atari" else None
        self._render: Callable[[], np.ndarray | None] = getattr(self._envs, "render", lambda: None)
        self.spec = self._envs.spec
        self._draw, self.legend, self.caption = _drawing(self.spec)
        self.palette = Palette()
        self.picture = np.zeros((0, 0), np.uint8)

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode; see `HostEnvs`."""
        frames = self._envs.reset(seed)
        self._film(frames if self._colour_envs is None else self._colour_envs.reset(seed))
        return frames

    def step(self, actions: np.ndarray) -> Step:
        """Take (1,) actions; see `HostEnvs`."""
        step = self._envs.step(actions)
        self._film(step.frames if self._colour_envs is None else self._colour_envs.step(actions).frames)
        return step

    def close(self) -> None:
        """Free the environments; see `HostEnvs`."""
        for envs in filter(None, (self._envs, self._colour_envs)):
            envs.close()

    def _film(self, frames: np.ndarray) -> None:
        rendered = self._render()
        self.picture = self.palette.indices(self._draw(frames[0]) if rendered is None else rendered)


def _drawing(spec: EnvSpec) -> tuple[Callable[[np.ndarray], np.ndarray], list[tuple[str, str]], str]:
    """How to draw a frame as an RGB picture (H, W, 3), with a legend and a caption."""
    shape = spec.frame_shape
    if spec.family == "atari":
        return np.asarray, [], "the game's screen; the agent sees it in gray, 84 x 84"
    if _is_cartpole(spec):
        return draw_cart, [], ""
    if len(shape) == 3 and spec.frame_scale == 1.0:
        names = _CHANNELS.get(spec.name) or {f"channel {i}": i for i in range(shape[2])}
        legend = [(name, COLOURS[i % len(COLOURS)]) for i, name in enumerate(names)]
        colours = np.array([BLACK, *(list(bytes.fromhex(colour[1:])) for _, colour in legend)], np.uint8)
        return lambda frame: draw_channels(frame, list(names.values()), colours), legend, ""
    if len(shape) == 3 and shape[2] == 3:
        return np.asarray, [], ""
    if len(shape) > 1:
        return lambda frame: draw_gray(frame, spec.frame_scale), [], "what the agent sees, in gray"
    return draw_bars, [], "the observation's numbers as bars, x drawn as x / (1 + |x|)"


def action_names(config: TrainConfig, spec: EnvSpec) -> list[str]:
    """What the actions do; "action 0", "action 1", ... where that is not known."""
    names: list[str] = []
    if spec.family == "atari":
        from ale_py import Action, ALEInterface, LoggerMode, roms

        ALEInterface.setLoggerMode(LoggerMode.Error)
        emulator = ALEInterface()
        emulator.loadROM(str(roms.get_rom_path(game_name(config.env) or "")))
        actions = Action.__members__.values() if config.full_action_space else emulator.getMinimalActionSet()
        words = [re.findall("NOOP|UP|DOWN|LEFT|RIGHT|FIRE", action.name) for action in actions]  # UPRIGHTFIRE
        names = [" ".join(some).lower().replace("noop", "no-op") for some in words][: spec.num_actions]
    elif _is_cartpole(spec):
        names = ["push left", "push right"]
    elif spec.name.endswith("-MinAtar"):
        from cramerl.deep.envs.gymnax import GymnaxEnv

        chosen = getattr(GymnaxEnv(config.env, options=dict(config.env_options))._env, "action_set", ())
        names = [_MINATAR_ACTIONS[int(i)] for i in chosen]
    return names if len(names) == spec.num_actions else [f"action {i}" for i in range(spec.num_actions)]


def _is_cartpole(spec: EnvSpec) -> bool:
    return spec.name.removeprefix("gym:") in ("CartPole-v0", "CartPole-v1") and spec.frame_shape == (4,)
