"""Published Atari scores to compare ours with, each with its source and protocol. Sanity checks, not targets.

The same settings in two codebases differ by more than two agents in one codebase (C51 on Seaquest at 200 M frames:
31,026 and 1,914), so agents are only compared within one codebase. ``published.json`` holds:

- random and human play: scores of evaluation with no-op starts (Wang et al. 2016; DQN Zoo's atari_data);
- Dopamine TF and JAX: means of five runs; at 10 and 20 M frames, iterations 9 and 19 in its baselines/atari/data;
- DQN Zoo: means of five runs; at 10 and 20 M frames, its 10th and 20th million, with the least and the most of the five
  seeds (re-exported by alherit/cr-dqn, dqn_zoo_curves/train_all_seeds);
- CleanRL: its benchmark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple

_DATA = json.loads(files("cramerl.evidence").joinpath("published.json").read_text(encoding="utf-8"))

RANDOM_HUMAN: dict[str, tuple[float, float]] = {game: tuple(both) for game, both in _DATA["random_and_human"].items()}
"""The scores of random play and of a human tester, by game."""


SPREAD = "DQN Zoo, 5 seeds (min to max)"
"""What a ``spread`` is of."""


class PublishedScores(NamedTuple):
    """Mean training scores of one agent on one game, by million frames; ``spread`` has the range of its seeds."""

    game: str
    agent: str
    source: str
    sticky: bool
    scores: dict[int, float]
    spread: Mapping[int, tuple[float, float]] = MappingProxyType({})

    @property
    def protocol(self) -> str:
        """What the scores depend on, as far as the source says."""
        return "sticky actions (0.25)" if self.sticky else "not sticky"

    def text(self, millions: int) -> str:
        """The score after some million frames as it was published, with the range of its seeds if that is known."""
        score = f"{self.scores[millions]:,g}"
        return (
            f"{score} [{', '.join(f'{end:,g}' for end in self.spread[millions])}]" if millions in self.spread else score
        )

    def nearest(self, frames: float) -> int:
        """The published number of million frames that is nearest to ``frames``."""
        return min(self.scores, key=lambda millions: (abs(millions * 1e6 - frames), millions))


def _read(one: dict[str, Any]) -> PublishedScores:
    scores = {int(millions): float(score) for millions, score in one["scores"].items()}
    spread = {int(millions): (float(low), float(high)) for millions, (low, high) in one.get("spread", {}).items()}
    return PublishedScores(**one | {"scores": scores, "spread": spread})


PUBLISHED = tuple(map(_read, _DATA["training_scores"]))


def published_scores(game: str | None) -> list[PublishedScores]:
    """What was published about a game, as `cramerl.deep.envs.names.game_name` names it."""
    return [one for one in PUBLISHED if one.game == game]
