"""Where the numbers of `Trust` begin to speak against an answer: all thresholds of the verdict."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

Verdict = Literal["use", "care", "do not use"]


class Limit(NamedTuple):
    """Past ``care`` a number calls for care, past ``stop`` the answer is not to be used; ``least``: past is below."""

    care: float
    stop: float
    least: bool = False

    def verdict(self, value: float, unit: float = 1.0) -> Verdict | None:
        """What a value says, with limits in this unit; None if it says nothing, as NaN does."""
        if self._is_past(value, self.stop * unit):
            return "do not use"
        return "care" if self._is_past(value, self.care * unit) else None

    def _is_past(self, value: float, limit: float) -> bool:
        return value < limit if self.least else value > limit


# Of the equations.
LARGEST_MASS = Limit(10, 10)
CONSTRAINED_RESIDUAL = Limit(-math.inf, 1e-3)
NEGATIVE_MASS = Limit(0.05, 0.5)
MEANS_OUTSIDE = Limit(0.02, 0.2)
LSTD_GAP = Limit(0.1, 0.5)
VARIANCE_RATIO = Limit(1.2, math.inf)
CUT_OFF = Limit(0.02, 0.02)
"""Of the mean return, in widths of the support."""

# Of the features.
HELD_OUT_CRPS = Limit(1.02, 1.2)
"""In CRPS of one distribution for all states."""
NO_BETTER_CRPS = 0.998
"""In the same: from here on features are no better."""
CALIBRATION = Limit(0.1, 0.25)
"""Of the Kolmogorov-Smirnov statistic, where its p-value is below `CALIBRATION_P`."""
CALIBRATION_P = 1e-3

REGULARISATION = Limit(0.3, 3.0)
"""Of the mean, in standard errors."""
LEAST_ERROR = 1e-3
"""Of these errors, in standard deviations of the return: what moves less than they do matters to nobody."""

# Of the episodes.
EPISODES = Limit(30, 5, least=True)
ROWS_PER_FEATURE = Limit(5, 2, least=True)
MONTE_CARLO_GAP = Limit(0.1, 0.25)
"""In standard deviations of the return, where it is more than `MONTE_CARLO_ERRORS` standard errors."""
MONTE_CARLO_ERRORS = 4
FEW_TRUNCATED = 0.05
"""Share of episodes that are cut up to which complete ones stand for all."""
TRUNCATED = Limit(0.5, math.inf)
ERRORS_AT_CUTS = 5
"""Standard errors by which rewards are more frequent in the rows that are left out, where no column names the ends."""
BEYOND_CUTS = Limit(0.05, 0.3)
"""Share of the discounted weight, where a column drifts."""
START_COVERAGE = Limit(0.9, 0.5, least=True)

# Of a policy that did not make the log.
UNSEEN_ACTIONS = Limit(0.05, 0.3)
UNSEEN_IN_EPISODE = Limit(0.1, math.inf)
EFFECTIVE_EPISODES = Limit(30, -math.inf, least=True)

CALLED_ENDS = frozenset({"done", "dones", "is_done", "terminal", "terminals", "is_terminal", "end", "ended", "over"})
"""Names of columns that often say where episodes end. They may mean a cut as well, so nobody guesses."""
