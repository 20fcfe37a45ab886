"""An evaluation in words: the answer first, then the verdict, then the details."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cramerl.linear.logs.estimates import Estimate
from cramerl.supports import Support

if TYPE_CHECKING:
    from cramerl.linear.logs.policy_evaluation import PolicyEvaluation

QUANTILES, CVARS = (0.05, 0.5, 0.95), (0.1, 0.25)


def summary(found: PolicyEvaluation) -> str:
    """All that an evaluation has to say, as text."""
    parts = [answer(found), verdict(found), comparisons(found), details(found)]
    return "\n\n".join(part for part in parts if part)


def answer(found: PolicyEvaluation, quantiles: tuple[float, ...] = QUANTILES, cvars: tuple[float, ...] = CVARS) -> str:
    """The mean, quantiles and CVaR with their intervals."""
    whose = "the policy that made the log" if found.policy is None else "the policy"
    start = found.settings_start
    lines = [f"Return of {whose} from {start}, discount {found.discount:g}"]
    figures = [("mean", found.mean)]
    figures += [(f"{100 * q:g}% quantile", found.quantile(q)) for q in quantiles]
    figures += [(f"mean of the worst {100 * a:g}%", found.cvar(a)) for a in cvars]
    lines += [_row(name, estimate, found.distribution.level) for name, estimate in figures]
    return "\n".join(lines)


def verdict(found: PolicyEvaluation) -> str:
    """The verdict and its reasons."""
    trust = found.trust
    head = {"use": "Verdict: use.", "care": "Verdict: take care.", "do not use": "Verdict: do not use."}[trust.verdict]
    return "\n".join([head, *(f"- {reason}" for reason in trust.reasons)])


def comparisons(found: PolicyEvaluation) -> str:
    """Other estimates of the mean; empty if the log allows none."""
    if not found.comparisons:
        return ""
    lines = ["Other estimates of the mean"]
    for other in found.comparisons:
        lines.append(f"  {other.name:<24}{other.mean:>11.4g}  standard error {other.se:.2g}, {other.note}")
    return "\n".join(lines)


def details(found: PolicyEvaluation) -> str:
    """The log, the features and the equations."""
    model, selection, log = found.model, found.selection, found.log
    lines = [
        repr(log),
        *log.notes,
        f"Features: {selection.features.name}, {model.n_features_in_} columns; {_choice(found)}",
        f"Support: {atoms_in_words(model.support_)}.",
        f"Equations solved: {model.method_}, residual {model.residual_:.1e}.",
        f"Mean return by ordinary LSTD: {found.lstd_mean:.4g}.",
        model.support_report_.sentence,
        *model.certificate_.sentences,
        *found.messages,
    ]
    return "\n".join(lines)


def atoms_in_words(support: Support) -> str:
    """How many atoms a support has, and where they lie."""
    how = "evenly spaced" if support.is_uniform else "closest together where returns were seen"
    return f"{support.num_atoms} atoms from {support.v_min:.6g} to {support.v_max:.6g}, {how}"


def _choice(found: PolicyEvaluation) -> str:
    selection = found.selection
    if not selection.tried:
        return "not compared with others on held-out episodes."
    best: dict[str, float] = {}
    for candidate in selection.tried:
        best[candidate.name] = min(candidate.crps, best.get(candidate.name, np.inf))
    listed = ", ".join(f"{name} {score:.4g}" for name, score in sorted(best.items(), key=lambda item: item[1]))
    completed = ""
    if selection.completed > 0:
        completed = f"; {100 * selection.completed:.0f}% of these returns were cut and completed at random"
    return f"CRPS on held-out episodes: {listed}, one distribution for all states {selection.pooled:.4g}{completed}."


def _row(name: str, estimate: Estimate, level: float) -> str:
    line = f"  {name:<24}{estimate.value:>11.4g}"
    if not np.isnan(estimate.low):
        line += f"   {100 * level:g}% interval {estimate.low:.4g} to {estimate.high:.4g}"
    return line
