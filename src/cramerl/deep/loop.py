"""What a trainer needs of a loop; `CompiledLoop` and `HostLoop` are the two.

A loop counts in blocks and rows. A row is one step of every parallel environment, and one row of the replay. A block
is what the schedule repeats: one or more rows, then their updates. A segment is a stretch of blocks without a change
of the target network. An iteration is the blocks between two checkpoints. See `cramerl.deep.schedule`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from cramerl.deep.block_totals import BlockTotals
from cramerl.deep.envs.base import EnvSpec
from cramerl.deep.episodes import Episodes
from cramerl.deep.networks import Params
from cramerl.deep.schedule import Schedule

_LAST_ROWS = 1000  # that are searched for the reason of a loss that is not finite


class Loop(Protocol):
    """Plays, learns, and can be saved.

    Attributes:
        schedule: block size, update ratio, exploration and target-network periods.
        block: how many blocks have run.
    """

    schedule: Schedule
    block: int

    @property
    def spec(self) -> EnvSpec:
        """The environment."""
        ...

    @property
    def row(self) -> int:
        """How many rows of the replay have been written, counted from the beginning of the run."""
        ...

    @property
    def params(self) -> Params:
        """The weights of the first lane."""
        ...

    @property
    def all_params(self) -> Params:
        """The weights of all lanes, which are the first axis if there are several."""
        ...

    def set_params(self, params: Params) -> None:
        """Start from these weights, in every lane."""
        ...

    def begin_iteration(self, iteration: int) -> None:
        """Prepare the environments for an iteration."""
        ...

    def advance(self, num_blocks: int, stop: Callable[[], bool] | None = None) -> int:
        """Run blocks of the current iteration and add to the totals.

        Args:
            num_blocks: how many.
            stop: asked between blocks by loops that can stop there; True ends the call early.

        Returns:
            How many blocks ran.
        """
        ...

    def time_updates(self) -> float | None:
        """Seconds that the updates of one block will take, measured without learning anything.

        None where that cannot be measured beforehand. Some rows must have been played.
        """
        ...

    def end_iteration(self) -> None:
        """Finish the iteration, so that a checkpoint can be written; episodes that cannot be saved are cut."""
        ...

    def take_totals(self) -> list[BlockTotals]:
        """The sums of each lane since the last call, as NumPy numbers; they start again from zero."""
        ...

    def peek_totals(self) -> list[BlockTotals]:
        """The sums that `take_totals` would return; they are kept."""
        ...

    def take_episodes(self) -> list[Episodes]:
        """The episodes of each lane that ended since the last call. What is not taken is not saved."""
        ...

    @property
    def can_pause(self) -> bool:
        """Whether the loop can be saved here, within an iteration."""
        ...

    @property
    def counters(self) -> dict[str, int]:
        """How far the run has come, for `load`."""
        ...

    def save(self) -> Any:
        """A tree of arrays with everything but the counters and the replay's rows."""
        ...

    def load(self, state: Any, counters: dict[str, int]) -> None:
        """Continue from what `save` and `counters` returned; the replay's rows are restored first, by `write_rows`."""
        ...

    def read_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Rows [start, stop) of the replay, time first."""
        ...

    def write_rows(self, start: int, rows: dict[str, np.ndarray]) -> None:
        """Restore rows that `read_rows` returned."""
        ...

    def close(self) -> None:
        """Free environments and threads."""
        ...


def require_finite_rows(loop: Loop, env: str) -> None:
    """Raise ValueError if the last rows of the replay hold what no agent can learn from: settings do not mend that."""
    first = max(0, loop.row - min(_LAST_ROWS, loop.schedule.replay_rows))
    for name, numbers in loop.read_rows(first, loop.row).items():
        what = {"rewards": "rewards", "frames": "observations"}.get(name)
        if what and numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
            raise ValueError(f"{what} must be finite numbers, {env} gave some that are not")
