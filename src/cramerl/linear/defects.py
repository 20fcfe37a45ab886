r"""What is left of the equations at a solution, formed where no digits are lost.

A system in whitened weights is made of sums over states or rows, such as :math:`\Phi^\top \Xi \Phi`. Where features are
nearly dependent these sums keep only half as many digits as the features have, and so does their solution. The defect

.. math:: \Phi^\top \Xi\, (T' P - P), \qquad P = \Phi \Theta,

keeps all of them if the difference of both sides is formed in every state, or row, before anything is added up.
`cramerl.linear.solve.refined` then corrects the solution, for which the system is good enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cramerl._arrays import Floats
from cramerl.linear.operators import projected_bellman_update, projected_terminal_distribution
from cramerl.linear.problem import Normalisation, Problem, Whitening, mass_offset
from cramerl.linear.transition_sums import TransitionSums, ridge
from cramerl.linear.transitions import Rows, RowTotals, Source, few_rows
from cramerl.measures import with_unit_mass
from cramerl.projections import backup


def state_defect(problem: Problem, weights: Floats) -> Floats:
    """(D, K) defect of whitened weights, over the states of a process."""
    branches, support = problem.process.branches, problem.support
    masses = problem.masses(problem.whitening.inverse @ weights)
    continuing = masses if problem.normalisation == "after" else with_unit_mass(support, masses)
    target = projected_bellman_update(branches.continuing(), support, continuing)
    target = target + projected_terminal_distribution(branches, support)
    if problem.normalisation == "after":
        target = with_unit_mass(support, target)
    return problem.whitened_features.T @ (problem.state_distribution[:, None] * (target - masses))


def row_defect(
    source: Source,
    sums: TransitionSums,
    basis: Whitening,
    normalisation: Normalisation,
    regularisation: float,
    weights: Floats,
) -> Floats:
    """(D, K) defect of whitened weights, over rows of transitions. It takes a pass over them."""
    support, k, offset = sums.support, sums.support.num_atoms, mass_offset(normalisation, sums.support)
    plain = basis.plain(weights)

    def product(part: Rows) -> list[Any]:
        following = part.next_features @ plain + offset
        if normalisation == "after":
            following = np.where(part.terminated[:, None], 1.0 / k, following)
        else:
            following = with_unit_mass(support, following)
        target = backup(support, part.rewards, part.continuation(sums.discount), following)
        if normalisation == "after":
            target = with_unit_mass(support, target)
        return [part.weighted_features.T @ (target - part.features @ plain - offset)]

    (total,) = source.total(RowTotals(product, (np.add,), few_rows(8 * k))).values
    return basis.fitted(total / sums.weight - ridge(sums, regularisation) @ plain)
