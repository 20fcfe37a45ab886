"""Published Atari scores to hold ours against, each with its source and protocol. Sanity ranges, not targets.

Same settings in two codes differ by more than two agents in one code (Seaquest at 200 M frames: 31,026 and 1,914), so
agents are compared inside one code only.
"""

from __future__ import annotations

from typing import NamedTuple

# Random and human play, scores of evaluation with no-op starts (Wang et al. 2016; DQN Zoo's atari_data).
RANDOM_HUMAN: dict[str, tuple[float, float]] = {
    "asterix": (210.0, 8503.3),
    "breakout": (1.7, 30.5),
    "pong": (-20.7, 14.6),
    "seaquest": (68.4, 42054.7),
    "space_invaders": (148.0, 1668.7),
}


class Anchor(NamedTuple):
    """Mean training score of one agent on one game, by million frames."""

    game: str
    agent: str
    source: str
    sticky: bool
    scores: dict[int, float]

    @property
    def protocol(self) -> str:
        """What the score depends on, as far as the source says."""
        return "sticky actions (0.25)" if self.sticky else "not sticky"

    def nearest(self, frames: float) -> int:
        """The published number of million frames nearest to ``frames``."""
        return min(self.scores, key=lambda millions: (abs(millions * 1e6 - frames), millions))


_DOPAMINE_FRAMES: tuple[int, ...] = (25, 50, 100, 200)
_ZOO_FRAMES: tuple[int, ...] = (50, 100, 200)
# Means of five runs. Dopamine's TensorFlow and JAX agents on the machado preset's protocol.
_DOPAMINE = {
    ("asterix", "dqn"): ((3056, 3203, 3222, 2711), (3873, 5590, 9977, 16655)),
    ("asterix", "c51"): ((5317, 6857, 10540, 13453), (4133, 8408, 20107, 25834)),
    ("breakout", "dqn"): ((63, 101, 120, 96), (97, 100, 146, 199)),
    ("breakout", "c51"): ((188, 223, 216, 202), (98, 260, 293, 314)),
    ("pong", "dqn"): ((8.1, 11.8, 15.1, 16.6), (16.3, 18.2, 19.1, 19.5)),
    ("pong", "c51"): ((15.2, 17.6, 19.1, 19.3), (13.2, 16.7, 18.0, 18.5)),
    ("seaquest", "dqn"): ((733, 1512, 1836, 1601), (2345, 3617, 4296, 5515)),
    ("seaquest", "c51"): ((1633, 1909, 7198, 31026), (848, 1715, 1753, 1914)),
    ("space_invaders", "dqn"): ((853, 1295, 1694, 1794), (1076, 1648, 2374, 4006)),
    ("space_invaders", "c51"): ((1142, 1669, 2599, 3984), (887, 1569, 3615, 7453)),
}
# Dopamine's TensorFlow agents at 10 and 20 M frames: iterations 9 and 19 of the runs in its baselines/atari/data.
_DOPAMINE_EARLY = {
    ("asterix", "dqn"): (2382, 2899),
    ("asterix", "c51"): (2549, 4659),
    ("breakout", "dqn"): (21.5, 52.9),
    ("breakout", "c51"): (47.1, 139.5),
    ("pong", "dqn"): (-4.9, 5.7),
    ("pong", "c51"): (-6.1, 14.2),
    ("seaquest", "dqn"): (300, 466),
    ("seaquest", "c51"): (639, 1328),
    ("space_invaders", "dqn"): (663, 796),
    ("space_invaders", "c51"): (686, 959),
}
_ZOO = {
    ("asterix", "dqn"): (3723, 3949, 962),
    ("asterix", "c51"): (58593, 196313, 178503),
    ("breakout", "dqn"): (194, 221, 218),
    ("breakout", "c51"): (431, 492, 502),
    ("pong", "dqn"): (16.1, 16.8, 17.1),
    ("pong", "c51"): (20.2, 20.5, 20.6),
    ("seaquest", "dqn"): (1731, 2723, 2967),
    ("seaquest", "c51"): (18418, 88597, 127228),
    ("space_invaders", "dqn"): (1045, 1215, 1010),
    ("space_invaders", "c51"): (2911, 6119, 9840),
}
_CLEANRL = {"breakout": 462.0, "pong": 19.5}


def _all() -> tuple[Anchor, ...]:
    found = []
    for (game, agent), scores in _DOPAMINE.items():
        for source, values in zip(("Dopamine TF", "Dopamine JAX"), scores, strict=True):
            early = dict(zip((10, 20), _DOPAMINE_EARLY[game, agent], strict=True)) if source == "Dopamine TF" else {}
            by_frames = {at: float(x) for at, x in (early | dict(zip(_DOPAMINE_FRAMES, values, strict=True))).items()}
            found.append(Anchor(game, agent, source, True, by_frames))
        by_frames = dict(zip(_ZOO_FRAMES, map(float, _ZOO[game, agent]), strict=True))
        found.append(Anchor(game, agent, "DQN Zoo", False, by_frames))
        if agent == "c51" and game in _CLEANRL:
            found.append(Anchor(game, agent, "CleanRL", False, {40: _CLEANRL[game]}))
    return tuple(found)


ANCHORS = _all()


def anchors_for(game: str | None) -> list[Anchor]:
    """What was published of a game, which `game_name` gives in snake case."""
    return [one for one in ANCHORS if one.game == game]
