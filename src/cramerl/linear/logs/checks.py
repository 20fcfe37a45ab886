"""What the rows of a log say about a fitted model."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cramerl._arrays import Floats
from cramerl.linear.logs.calibration import Calibration
from cramerl.linear.logs.episodes import Episodes
from cramerl.linear.logs.policies import Policy
from cramerl.linear.logs.rows import LogRows
from cramerl.linear.logs.selection import split_log
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.linear.transitions import Rows, few_rows
from cramerl.supports import Support

if TYPE_CHECKING:
    from cramerl.linear.logs.policy_evaluation import PolicyEvaluation


# Share of held-out returns that may be cut, and completed at random, for calibration to say anything.
MOST_COMPLETED = 0.05


class RowChecks(NamedTuple):
    """Of the distributions of the log's states and next states: how far they are from distributions."""

    negative_mass: float
    largest_mass: float
    means_outside: float


def row_checks(model: DistributionalLSTD, rows: LogRows) -> RowChecks:
    """Look at the masses of every state and next state of the log."""
    look = _Look(model.support_, model.weights_)
    parts = np.array(list(rows.mapped(look)))
    negative, outside, count = parts[:, [0, 2, 3]].sum(axis=0) if len(parts) else np.zeros(3)
    largest = float(parts[:, 1].max(initial=0.0)) if len(parts) else 0.0
    return RowChecks(float(negative / max(1.0, count)), largest, float(outside / max(1.0, count)))


class _Look(NamedTuple):
    """What is counted of the states of a block: negative mass, the largest one, means outside the support, states."""

    support: Support
    weights: Floats

    def __call__(self, rows: LogRows, block: Episodes, made: Rows) -> tuple[float, float, float, int]:
        support, negative, outside, largest, count = self.support, 0.0, 0.0, 0.0, 0
        slack = 0.01 * (support.v_max - support.v_min)
        for part in made.parts(few_rows(4 * support.num_atoms)):
            going = np.flatnonzero(~part.terminated)
            for table in (part.features, part.next_features[going]):
                if not table.shape[0]:
                    continue
                masses = table @ self.weights
                means = masses @ support.atoms
                negative += float(-np.minimum(masses, 0.0).sum())
                outside += float(((means < support.v_min - slack) | (means > support.v_max + slack)).sum())
                largest = max(largest, float(np.abs(masses).max()))
                count += len(masses)
        return negative, largest, outside, count


def held_out_calibration(found: PolicyEvaluation) -> Calibration | None:
    """Calibration on complete held-out episodes of the same features, fitted to the others; None if there are few."""
    parts = split_log(found.log, found.discount, found.settings.seed + 1)
    if parts is None or parts.completed > MOST_COMPLETED:
        return None
    features, rho = found.selection.features, found.selection.strength / parts.fitted.num_transitions
    model = DistributionalLSTD(found.model.support_, found.discount, regularisation=rho, tol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the whole log's model has said it already
        try:
            model.fit_source(LogRows(parts.fitted, features))
        except (ValueError, np.linalg.LinAlgError):
            return None
    probs, episodes = [], []
    for block, rows in LogRows(parts.scored, features).blocks():
        probs.append(model.predict_proba(rows.features))
        episodes.append(block.episode)
    together = np.concatenate(probs)
    return Calibration.of(model.support_, together, parts.returns, np.concatenate(episodes), found.settings.seed)


def probabilities_taken(policy: Policy, block: Episodes) -> Floats:
    """(n,) probability of each logged action under a policy."""
    probs = policy(block.observations.take(block.current))
    if block.actions is None:
        raise ValueError("log must have actions, got none: name them with action=")
    return probs[np.arange(len(probs)), block.actions]
