"""The settings and library versions of a study's runs, as words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cramerl.evidence.curves import Curve
from cramerl.evidence.scores import Summary
from cramerl.report.tables import Table
from cramerl.runs.config import applies_to_agent

# What lanes tell apart is in the settings of each run; its lists, and where things are written, say nothing more.
_SKIPPED = {"agent", "env", "lanes", "learning_rates", "mass_penalties", "tensorboard", "track"}


def settings_table(summary: Summary) -> Table:
    """Each setting with its value, or where not all agents have the same each value with the agents that do."""
    curves = sorted(summary.curves, key=lambda curve: curve.agent)
    names = {name: None for curve in curves for name in curve.settings if name not in _SKIPPED}
    rows = [[name, _values(name, curves)] for name in names]
    return Table("settings", "Settings", ["setting", "value"], [row for row in rows if row[1]])


def versions(summary: Summary) -> list[list[str]]:
    """The versions runs were made with, each once."""
    found = {tuple(f"{name} {value}" for name, value in curve.versions.items()): None for curve in summary.curves}
    return [list(words) for words in sorted(found) if words]


def _values(name: str, curves: list[Curve]) -> str:
    agents: dict[str, dict[str, None]] = {}
    for curve in curves:
        if name in curve.settings and applies_to_agent(name, curve.agent):
            agents.setdefault(_words(name, curve.settings[name]), {})[curve.agent] = None
    if name == "seed":
        return ", ".join(sorted(agents, key=int))
    everyone = {curve.agent for curve in curves}
    if all(set(found) == everyone for found in agents.values()):
        return ", ".join(agents)
    return "; ".join(f"{value} ({', '.join(found)})" for value, found in agents.items())


def _words(name: str, value: Any) -> str:
    if name == "initial_weights":  # a path on somebody's machine
        return Path(value).name
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return " × ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and name != "seed" else str(value)
