"""Observed states: numeric columns and categorical ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats


class Observations(NamedTuple):
    """Observed states, one per row."""

    numbers: Floats
    """(m, C) numeric columns; truth values are 0 and 1, times are seconds."""
    codes: NDArray[np.int32]
    """(m, Cc) categorical columns: indices into the levels of the schema; -1 for a level the log never had."""
    probs: Floats | None = None
    """(m, P) columns with the probabilities of policies, where they were asked for."""

    def __len__(self) -> int:
        """Number of states, not of fields (so `_replace` does not work)."""
        return len(self.numbers)

    def take(self, index: Any) -> Self:
        """Some of the states: by a slice, indices or a mask."""
        return type(self)(self.numbers[index], self.codes[index], None if self.probs is None else self.probs[index])

    @classmethod
    def join(cls, parts: Sequence[Observations]) -> Self:
        """The parts as one."""
        probs = [part.probs for part in parts if part.probs is not None]
        return cls(
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.codes for part in parts]),
            np.concatenate(probs) if len(probs) == len(parts) else None,
        )


class ObservationSchema(NamedTuple):
    """What the columns of observations are."""

    number_names: tuple[str, ...]
    category_names: tuple[str, ...]
    levels: tuple[tuple[str | int, ...], ...]
    """The levels of each categorical column, sorted."""
