"""Atari games on ale-py's vector environment: raw rewards, and game over distinguished from lost lives."""

from __future__ import annotations

import difflib
import re
from typing import Any

import numpy as np
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from cramerl.deep.envs.base import EnvSpec, Step, env_seeds, require_actions, require_count
from cramerl.deep.envs.names import game_name

_TWO_PLAYERS = {"combat", "joust", "maze_craze", "warlords"}  # ALE runs these with several players only
_ROMS = sorted(set(roms.get_all_rom_ids()) - _TWO_PLAYERS)


class AtariEnvs:
    """N copies of one game: 84 x 84 gray frames, each the maximum of the last two of four emulator frames.

    Frames are single; they are stacked where stacks are needed. Rewards are not clipped. The frame of a step that ends
    an episode may be a few emulator frames old: ALE does not draw the frame on which the game stops.

    Attributes:
        spec: see `EnvSpec`.
        num_envs: N.

    Args:
        name: "pong", "Pong" or "ALE/Pong-v5"; see `game_name`.
        num_envs: N.
        sticky: probability that the emulator repeats the last action, at each of its frames.
        life_loss_ends: whether a lost life is ``terminated`` for the learner, and the next frame ``first``. The game
            continues.
        max_episode_frames: emulator frames after which an episode is cut off.
        noop_max: largest number of no-ops at the start of a game; 0 for none.
        fire_reset: whether to press fire at the start of a game that needs it.
        full_action_space: all 18 actions instead of those the game uses.
        num_threads: threads of the emulator; 0 lets ALE choose.
        skip: how many environments of the same run come before these: the seeds do not depend on the grouping.
        colour: frames are the game's own screen, 210 x 160 in RGB: for people, not for agents.
    """

    def __init__(
        self,
        name: str,
        num_envs: int,
        *,
        sticky: float = 0.0,
        life_loss_ends: bool = True,
        max_episode_frames: int = 108_000,
        noop_max: int = 0,
        fire_reset: bool = False,
        full_action_space: bool = False,
        num_threads: int = 0,
        skip: int = 0,
        colour: bool = False,
    ):
        game = game_name(name)
        if game not in _ROMS:
            raise ValueError(f"env must be an Atari game such as 'pong' or 'ALE/Pong-v5', got {name!r}{_near(name)}")
        self.num_envs = require_count("num_envs", num_envs, 1)
        self._skip = require_count("skip", skip, 0)
        self._life_loss_ends = bool(life_loss_ends)
        self._envs: AtariVectorEnv | None = AtariVectorEnv(
            game,
            self.num_envs,
            num_threads=require_count("num_threads", num_threads, 0),
            max_num_frames_per_episode=require_count("max_episode_frames", max_episode_frames, 1),
            repeat_action_probability=_probability("sticky", sticky),
            full_action_space=bool(full_action_space),
            autoreset_mode=AutoresetMode.NEXT_STEP,
            stack_num=1,
            frameskip=4,
            maxpool=True,
            noop_max=require_count("noop_max", noop_max, 0),
            use_fire_reset=bool(fire_reset),
            reward_clipping=False,
            **({"grayscale": False, "img_height": 210, "img_width": 160} if colour else {}),
            # ALE's "terminated" then means game over. Lives are counted here, where a time limit remains visible.
            episodic_life=False,
            life_loss_info=False,
        )
        self.spec = EnvSpec(
            name=name,
            family="atari",
            num_actions=len(self._envs.ale.get_action_set()),
            frame_shape=(210, 160, 3) if colour else (84, 84),
            frame_dtype="uint8",
            stack=4,
            frame_scale=255.0,
            frames_per_step=4,
        )
        self._lives: np.ndarray | None = None
        self._ended = np.zeros(self.num_envs, bool)

    def reset(self, seed: int) -> np.ndarray:
        """See `HostEnvs`."""
        seeds = env_seeds(seed, self._skip + self.num_envs)[self._skip :]
        frames, info = self._open().reset(seed=seeds.astype(np.int64))
        self._lives, self._ended = info["lives"], np.zeros(self.num_envs, bool)
        return frames[:, 0]

    def step(self, actions: np.ndarray) -> Step:
        """See `HostEnvs`."""
        envs = self._open()
        if self._lives is None:
            raise ValueError("reset must be called before step")
        actions = require_actions(actions, self.num_envs, self.spec.num_actions)
        frames, rewards, over, cut, info = envs.step(actions)
        reset, lives = self._ended, info["lives"]
        ended = over | cut
        lost = (lives < self._lives) & ~reset & self._life_loss_ends
        self._lives, self._ended = lives, ended
        return Step(
            frames=frames[:, 0],
            rewards=np.where(reset, 0, rewards).astype(np.float32),
            terminated=over | lost,
            ended=ended.copy(),
            first=reset | (lost & ~ended),
        )

    def close(self) -> None:
        """Stop the emulator's threads; see `HostEnvs`."""
        self._envs = None

    def _open(self) -> AtariVectorEnv:
        if self._envs is None:
            raise ValueError("these environments were closed; make new ones")
        return self._envs


def _near(name: Any) -> str:
    """Games with similar names, as the end of a sentence."""
    plain = {rom.replace("_", ""): rom for rom in _ROMS}
    word = re.sub(r"^ale/|(noframeskip)?-v\d+$|_", "", str(name).lower())
    near = [plain[match] for match in difflib.get_close_matches(word, plain)]
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _probability(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a probability in [0, 1], got {value!r}")
    return float(value)
