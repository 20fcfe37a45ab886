"""Tells when returns or values lie beyond a support that was given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cramerl.deep.block_totals import BlockTotals
from cramerl.deep.networks import Params
from cramerl.runs.config import TrainConfig
from cramerl.runs.scores import MUCH_CLIPPED


def support_of(config: TrainConfig, all_params: Params, lane: int) -> tuple[float, float] | None:
    """Smallest and largest return of a run's support, if it has one."""
    support = all_params.get("support")
    if support is None:
        return None
    low, spacing = (np.asarray(support[name]).reshape(-1)[lane] for name in ("low", "spacing"))
    return float(low), float(low + spacing * (config.num_atoms - 1))


class SupportWatch:
    """Finds what to say of the ends of a support, once of each.

    A support that finds itself moves by itself, so nothing is said of it.

    Args:
        config: the settings of the runs that it watches.
    """

    def __init__(self, config: TrainConfig):
        self._config = config
        self._said: set[str] = set()

    def warnings(self, support: tuple[float, float] | None, total: BlockTotals, realised: np.ndarray) -> Iterator[str]:
        """What to say of one run.

        Args:
            support: its smallest and largest return, if it has any.
            total: what was measured since the last log line.
            realised: the discounted returns that ended since then.
        """
        if support is None or self._config.v_min is None:
            return
        low, high = support
        spacing = (high - low) / (self._config.num_atoms - 1)
        info, blocks = total.info, max(int(total.blocks), 1)
        value = float(info.q_values) / blocks if total.blocks else None
        least, most = (float(end(realised)) if len(realised) else None for end in (np.min, np.max))
        below, above = float(info.clipped_below) / blocks, float(info.clipped_above) / blocks
        yield from self._of_end("v_min", low, "below", below, _lower(value, low), _lower(least, low - spacing))
        yield from self._of_end("v_max", high, "above", above, _higher(value, high), _higher(most, high + spacing))

    def _of_end(
        self, end: str, place: float, side: str, mass: float, value: float | None, realised: float | None
    ) -> Iterator[str]:
        if mass > MUCH_CLIPPED:
            what = f"{mass:.0%} of the target mass lies"
        elif value is not None:
            what = f"the mean value {value:.3g} is"
        elif realised is not None:
            what = f"a realised return, {realised:.3g}, lies"
        else:
            return
        if end not in self._said:
            self._said.add(end)
            yield (
                f"{what} {side} {end} = {place:g}: returns beyond it cannot be told apart. Choose another {end}, or "
                "leave v_min and v_max out: the support then finds itself"
            )


def _lower(value: Any, bound: float) -> float | None:
    return value if value is not None and value < bound else None


def _higher(value: Any, bound: float) -> float | None:
    return value if value is not None and value > bound else None
