"""An evaluation in words: the answer first, then the verdict, then the details."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from cramerl.linear.logs.estimates import Estimate
from cramerl.supports import Support

if TYPE_CHECKING:
    from cramerl.linear.logs.log import Log
    from cramerl.linear.logs.policy_evaluation import PolicyEvaluation, PolicyEvaluations

QUANTILES, CVARS = (0.05, 0.5, 0.95), (0.1, 0.25)
# Where the words of a row begin that has a name and a number before them.
_WORDS_FROM = 39


def summary(found: PolicyEvaluation) -> str:
    """All that an evaluation has to say, as text."""
    parts = [answer(found), verdict(found), comparisons(found), about_log(found.log), about_model(found)]
    return "\n\n".join(part for part in parts if part)


def summary_of_all(
    found: PolicyEvaluations, quantiles: Sequence[float] = QUANTILES, cvars: Sequence[float] = CVARS
) -> str:
    """All that evaluations of one log have to say: the answers and their differences first."""
    named, first = list(found.items()), next(iter(found.values()))
    parts = [answer(each, quantiles, cvars, name) for name, each in named]
    parts.append(differences(found, cvars))
    for part in (verdict, comparisons):
        parts += [part(each, name) for name, each in named]
    parts.append(about_log(first.log))
    parts += [about_model(each, name) for name, each in named]
    return "\n\n".join(part for part in parts if part)


def answer(
    found: PolicyEvaluation, quantiles: Sequence[float] = QUANTILES, cvars: Sequence[float] = CVARS, name: str = ""
) -> str:
    """The mean, quantiles and CVaR with their intervals."""
    whose = f"policy {name}" if name else "the policy"
    whose = f"{whose}, which made the log," if found.policy is None and name else whose
    whose = "the policy that made the log" if found.policy is None and not name else whose
    lines = [f"Return of {whose} from {found.settings_start}, discount {found.discount:g}"]
    figures = [("mean", found.mean)]
    figures += [(f"{100 * q:g}% quantile", found.quantile(q)) for q in quantiles]
    figures += [(f"mean of the worst {100 * a:g}%", found.cvar(a)) for a in cvars]
    lines += [_row(name, estimate, found.distribution.level) for name, estimate in figures]
    return "\n".join(lines)


def differences(found: PolicyEvaluations, cvars: Sequence[float] = CVARS) -> str:
    """How much more each policy has than another, the baseline last; empty for a single one."""
    parts, order = [], sorted(found, key=lambda name: found[name].policy is None)
    for first, second in combinations(order, 2):
        level = found[first].distribution.level
        lines = [f"Policy {first} has more than {second}", _row("mean", found.difference(first, second), level)]
        for a in cvars:
            worst = found.difference(first, second, "cvar", a)
            lines.append(_row(f"mean of the worst {100 * a:g}%", worst, level))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def verdict(found: PolicyEvaluation, name: str = "") -> str:
    """The verdict and its reasons."""
    trust = found.trust
    words = {"use": "use", "care": "take care", "do not use": "do not use"}[trust.verdict]
    head = f"Verdict on policy {name}: {words}." if name else f"Verdict: {words}."
    return "\n".join([head, *(f"- {reason}" for reason in trust.reasons)])


def comparisons(found: PolicyEvaluation, name: str = "") -> str:
    """Other estimates of the mean; empty if the log allows none."""
    if not found.comparisons:
        return ""
    lines = [f"Other estimates of the mean of policy {name}" if name else "Other estimates of the mean"]
    for other in found.comparisons:
        lines.append(f"  {other.name:<24}{other.mean:>11.4g}  standard error {other.se:.2g}, {other.note}")
    return "\n".join(lines)


def about_log(log: Log) -> str:
    """What is in the log, and what was decided about it."""
    return "\n".join([repr(log), *log.notes])


def about_model(found: PolicyEvaluation, name: str = "") -> str:
    """The features and the equations."""
    model, selection = found.model, found.selection
    sources = "" if found.policy is None else found.policy.sources
    lines = [
        *([f"Policy {name}"] if name else []),
        *([f"Its probabilities of actions: {sources}."] if sources else []),
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


def wrapped(text: str, width: int) -> str:
    """The lines, none longer than the width if words allow it; what follows stands below the words it belongs to."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = " " * (_WORDS_FROM if line.startswith("  ") else 2 if line.startswith("- ") else 0)
        lines += textwrap.wrap(line, max(width, 60), subsequent_indent=indent, break_long_words=False) or [""]
    return "\n".join(lines)


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
