"""Short names of series: an agent is named by its settings only where another variant of it is beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cramerl.evidence.comparisons import Comparison
from cramerl.evidence.scores import Series

Labels = Mapping[Series, str]


def full_labels(series: Sequence[Series]) -> dict[Series, str]:
    """Each series with its full name."""
    return {one: one.label for one in series}


def short_labels(series: Sequence[Series]) -> dict[Series, str]:
    """Each series with a name that leaves out what all variants of its agent share."""
    labels = {}
    for one in series:
        shared = _shared(one.agent, series)
        own = tuple(pair for pair in one.settings if pair not in shared.settings)
        labels[one] = Series(one.agent, own, "" if shared.protocol else one.protocol).label
    return labels


def left_out(series: Sequence[Series]) -> list[str]:
    """A sentence that says what short names leave out, if they leave out anything."""
    shared = [_shared(agent, series) for agent in dict.fromkeys(one.agent for one in series)]
    words = [f"{one.agent} has {one.variant}" for one in shared if one.variant]
    return [f"Names leave out what all runs of an agent share: {'; '.join(words)}."] if words else []


def _shared(agent: str, series: Sequence[Series]) -> Series:
    """What all variants of an agent have in common."""
    variants = [one for one in series if one.agent == agent]
    settings = [pair for pair in variants[0].settings if all(pair in one.settings for one in variants)]
    protocols = {one.protocol for one in variants}
    return Series(agent, tuple(settings), protocols.pop() if len(protocols) == 1 else "")


def compared(one: Comparison, labels: Labels) -> str:
    """The two series of a comparison in words."""
    if labels[one.first] == one.first.label:
        return f"{labels[one.first]} against {one.second.beside(one.first)}"
    return f"{labels[one.first]} against {labels[one.second]}"
