"""One HTML file for somebody who has a log and a decision to take: the answer, the verdict, and what is behind both."""

from __future__ import annotations

import platform
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy

from cramerl._files import write_text
from cramerl._pages import render
from cramerl._version import __version__
from cramerl.evaluations.charts import Chart, DotPlot
from cramerl.evaluations.dots import comparison_plot, difference_plots, features_plot, policy_plots
from cramerl.evaluations.numerals import interval_of, percent, value_of
from cramerl.evaluations.pictures import (
    Figure,
    calibration_chart,
    calibration_words,
    distribution_charts,
    figures,
    left_out,
    no_calibration,
)
from cramerl.evaluations.trust_rows import TrustRow, trust_rows
from cramerl.linear.evaluation_file import MADE_BY
from cramerl.linear.logs.policy_evaluation import PolicyEvaluation, PolicyEvaluations
from cramerl.linear.logs.rows import FIRST_STATES
from cramerl.linear.logs.trust import UNKNOWABLE, Finding, findings
from cramerl.linear.logs.wording import atoms_in_words

PAGE = "evaluation.html"
VERDICTS = {
    "use": ("good", "✓", "Use this answer", "Use"),
    "care": ("care", "!", "Take care", "Take care"),
    "do not use": ("stop", "✕", "Do not use this answer", "Do not use"),
}
"""Of each verdict: its class, its mark, its words and fewer words."""


class Section:
    """What the page says about one evaluation.

    Args:
        found: the evaluation.
        name: of the policy; "" where there is only one.
        anchor: the section's id.
    """

    def __init__(self, found: PolicyEvaluation, name: str, anchor: str):
        self.found, self.name, self.anchor = found, name, anchor
        self.verdict = found.trust.verdict

    @property
    def title(self) -> str:
        """A heading."""
        return f"Returns of policy {self.name}" if self.name else f"Returns of {self.whose}"

    @property
    def whose(self) -> str:
        """The policy, in words."""
        return "the policy that made the log" if self.found.policy is None else "the policy"

    @cached_property
    def findings(self) -> list[Finding]:
        """What speaks against the answer."""
        return findings(self.found, self.found.trust)

    @property
    def answers(self) -> list[tuple[str, str, str]]:
        """The two numbers that matter, each as words before it, the number, and its interval."""
        found = self.found
        read = [("on average", found.mean), ("on average in the worst 10% of cases", found.cvar(0.1))]
        return [(words, value_of(estimate), interval_of(estimate)) for words, estimate in read]

    @property
    def facts(self) -> str:
        """From where, with what discount, and what intervals."""
        found = self.found
        discount = f"discounted by {found.discount:g} for each step" if found.discount < 1 else "not discounted"
        discount = "discounted as the log says" if found.log.has_discounts else discount
        said = f"A return is the sum of the rewards from a start on, {discount}. Starts are {found.settings_start}."
        if found.distribution.influence is None:
            why = "none were asked for" if found.log.num_episodes > 1 else "they need more than one episode"
            return f"{said} There are no intervals: {why}."
        count = f"{found.log.num_episodes:,}"
        return f"{said} Intervals tell how much the answer depends on which {count} episodes happen to be in the log."

    @property
    def figures(self) -> list[Figure]:
        """The numbers that are read off the distribution."""
        return figures(self.found.distribution)

    @property
    def charts(self) -> list[Chart]:
        """The masses and the CDF."""
        return distribution_charts(self.found.distribution)

    @property
    def left_out(self) -> str:
        """What the charts do not show."""
        return left_out(self.found.distribution)

    @property
    def calibration(self) -> tuple[Chart | None, str]:
        """The calibration plot and its test; or no plot and the reason."""
        seen = self.found.trust.calibration
        if seen is None:
            return None, no_calibration(self.found)
        return calibration_chart(seen), calibration_words(seen)

    @property
    def comparison(self) -> DotPlot:
        """Other estimates of the mean."""
        return comparison_plot(self.found)

    @property
    def comparison_note(self) -> str:
        """What to keep in mind when comparing."""
        found = self.found
        said = ""
        if found.settings_start != FIRST_STATES:
            said = f"The other methods start where episodes start; this estimate and LSTD from {found.settings_start}."
        if found.policy is not None and not any(other.weights is not None for other in found.comparisons):
            said += (
                " Importance sampling and doubly robust estimates need complete episodes and the probabilities with "
                "which the log's actions were chosen (a propensity column)."
            )
        return said.strip()

    @property
    def unchecked(self) -> str:
        """What could not be checked, and would need another column; empty if there is nothing."""
        if self.found.policy is None or self.found.log.layout.propensity is not None:
            return ""
        return "How many episodes look like this policy's was not checked: that needs a propensity column."

    @property
    def trust(self) -> list[TrustRow]:
        """All numbers behind the verdict."""
        return trust_rows(self.found)

    @property
    def equations(self) -> list[str]:
        """How the distribution was computed."""
        model = self.found.model
        return [
            f"Support: {atoms_in_words(model.support_)}.",
            f"Equations solved: {model.method_}, residual {model.residual_:.1e}.",
            model.support_report_.sentence,
            *model.certificate_.sentences,
            *self.found.messages,
        ]


class LogFacts(NamedTuple):
    """What holds for all evaluations of a log."""

    features: DotPlot | None
    features_note: str
    notes: list[str]


def write_page(found: PolicyEvaluation | PolicyEvaluations, folder: Path, command: str) -> Path:
    """Write ``evaluation.html``: the answer, the verdict and all that is behind them, in one file without network.

    Args:
        found: an evaluation from `cramerl.linear.evaluate_policy`, or those of several policies.
        folder: where to write the file.
        command: what made it, shown at its end.

    Returns:
        The path of the file.
    """
    several = found if isinstance(found, PolicyEvaluations) else PolicyEvaluations({"": found})
    if not several:
        raise ValueError("found must hold at least one evaluation, got none")
    sections = [Section(one, str(name), f"policy-{i}") for i, (name, one) in enumerate(several.items(), start=1)]
    together = len(several) > 1
    first = sections[0].found
    page = render(
        "cramerl.evaluations",
        "evaluation.html",
        generator=f"{MADE_BY} {__version__}",
        title=f"Returns of {len(several)} policies" if together else sections[0].title,
        sections=sections,
        policies=policy_plots(several) if together else [],
        differences=difference_plots(several) if together else [],
        baseline=several.baseline,
        log=_log_facts(first),
        level=f"{100 * first.distribution.level:g}%",
        verdicts=VERDICTS,
        unknowable=UNKNOWABLE,
        command=command,
        versions=_versions(),
    )
    return write_text(Path(folder) / PAGE, page)


def _log_facts(found: PolicyEvaluation) -> LogFacts:
    selection, log = found.selection, found.log
    notes = [repr(log).removeprefix("Log(").removesuffix(")"), *log.notes]
    said = [f"Features used: {selection.features.name}, {selection.features.num_features:,} columns."]
    if not selection.tried:
        return LogFacts(None, f"{said[0]} They were not compared with others on held-out episodes.", notes)
    said.append("CRPS is the mean distance of a predicted distribution from the return seen: smaller is better.")
    if selection.completed > 0:
        said.append(f"{percent(selection.completed, 0)} of these returns were cut and completed at random.")
    return LogFacts(features_plot(selection), " ".join(said), notes)


def _versions() -> str:
    parts = {"cramerl": __version__, "Python": platform.python_version(), "NumPy": np.__version__}
    return ", ".join(f"{name} {version}" for name, version in (parts | {"SciPy": scipy.__version__}).items())
