"""Figures of predicted distributions: a few steps of a recording, with a panel for each action."""

from __future__ import annotations

from typing import Any

import numpy as np

from cramerl import plots
from cramerl.reports.figures import Figure
from cramerl.reports.hover import Panel, Trace
from cramerl.watching.recording import Recording

LEAST_NEGATIVE = 5e-3  # less negative mass than this is 0.00 in two digits
_MOST_ACTIONS, _MOST_SNAPSHOTS = 4, 3


def choose_snapshots(recording: Recording) -> dict[int, str]:
    """Steps or states to show, and why: the start, the middle and the most negative mass; the end if that leaves room.

    For an evaluated process, the most visited state takes the place of the start.
    """
    negative, last = recording.views[0].negative, len(recording) - 1
    found = {0: ["start"]} if recording.visits is None else {int(np.argmax(recording.visits)): ["most visited"]}
    found.setdefault(len(recording) // 2, []).append("middle")
    if negative.max() > LEAST_NEGATIVE:
        found.setdefault(int(np.argmax(negative)), []).append("most negative mass")
    if len(found) < _MOST_SNAPSHOTS and recording.unit != "state" and last not in found:
        found[last] = ["end"]
    return {step: ", ".join(why) for step, why in found.items()}


def draw_distributions(recording: Recording, name: str, title: str, caption: str) -> Figure:
    """Draw the first agent's distributions: a row for each snapshot with a picture of the game, a column per action.

    A recording with a single action, such as an evaluated process, has its snapshots side by side in one row.
    """
    snapshots = choose_snapshots(recording)
    # The actions taken, then those with the largest values; in the game's order.
    taken = dict.fromkeys(int(recording.action[step]) for step in snapshots)
    values = recording.views[0].values[list(snapshots)].max(axis=0)
    actions = sorted(list(taken | dict.fromkeys(np.argsort(-values, kind="stable").tolist()))[:_MOST_ACTIONS])
    single = len(recording.actions) == 1
    rows, columns = (1, len(snapshots)) if single else (len(snapshots), 1 + len(actions))
    shape = {"width": 3.0} if single else {"width": 2.6, "first": 0.6}
    figure, axes = plots.new_figure(columns, rows=rows, height=2.1, **shape)
    grid = np.reshape(axes, (rows, columns))
    panels: list[Panel] = []
    titles: dict[str, str] = {}
    for row, (step, why) in enumerate(snapshots.items()):
        if single:
            axes_of = {0: grid[0, row]}
        else:
            axes_of = dict(zip(actions, grid[row, 1:], strict=True))
            grid[row, 0].imshow(recording.picture(step), interpolation="nearest", aspect=1.0)
            grid[row, 0].set_axis_off()
            grid[row, 0].set_title(f"{why}\n{recording.place(step)}", fontsize=9, loc="left")
        for action, ax in axes_of.items():
            panels.append(_draw_panel(ax, recording, step, why, action, f"distribution-{row}-{action}", titles))
        # One scale of masses for the actions of a snapshot, so that they can be compared.
        plots.share_limits(axes_of.values(), "y")
        next(iter(axes_of.values())).set_ylabel("mass", fontsize=8)
    for ax in grid[-1]:
        ax.set_xlabel("return" if ax.axison else "", fontsize=8)
    plots.add_distribution_legend(figure, negative=any(shape.endswith("negative") for shape in titles))
    return Figure(name, title, " ".join([caption, *_remarks(recording, actions)]), figure, panels, titles)


def _draw_panel(
    ax: Any, recording: Recording, step: int, why: str, action: int, name: str, titles: dict[str, str]
) -> Panel:
    """Draw one distribution; its shapes are called after ``name``, and their tooltips are added to ``titles``."""
    view = recording.views[0]
    atoms, masses = view.distribution(step, action)
    negative = float(np.maximum(-masses, 0).sum())
    view.draw(ax, step, action, name=name)
    ax.set_xlim(view.limits()[0])
    if view.kind == "masses":
        titles[f"{name}-positive"] = f"positive mass {float(np.maximum(masses, 0).sum()):.3g}"
        if (masses < 0).any():
            titles[f"{name}-negative"] = f"negative mass {negative:.3g}"
    ax.tick_params(labelsize=7)
    several, where = len(recording.actions) > 1, recording.place(step)
    chosen = several and action == recording.action[step]
    heading = recording.actions[action] if several else f"{where}, {why}"
    heading += f"{', chosen' if chosen else ''}\n{view.mean_label(step, action)}"
    ax.set_title(heading, fontsize=8, loc="left", fontweight="bold" if chosen else "normal")
    if chosen:
        ax.spines[:].set(visible=True, linewidth=1.6)
    if negative > LEAST_NEGATIVE:
        ax.set_title(f"negative {negative:.2f}", fontsize=8, loc="right", color=plots.NEGATIVE, fontweight="bold")
    words, no_interval = [f"return {atom:.4g}" for atom in atoms], np.full(len(atoms), np.nan)
    traces = [
        Trace(label, colour, words, atoms, np.where(which, masses, np.nan), no_interval, no_interval)
        for label, colour, which in (
            ("mass", plots.POSITIVE, masses >= 0),
            ("negative mass", plots.NEGATIVE, masses < 0),
        )
        if which.any()
    ]
    return Panel(where + (f", {recording.actions[action]}" if several else ""), ax, traces)


def _remarks(recording: Recording, actions: list[int]) -> list[str]:
    """Sentences for the caption."""
    view, found, several = recording.views[0], [], len(recording.actions) > 1
    if len(actions) < len(recording.actions):
        shown = f"{len(actions)} of {len(recording.actions)} actions"
        found.append(f"Shown are {shown}: those taken, then those with the largest values.")
    if view.kind == "quantiles":
        found.append("Sticks of equal mass stand at the predicted quantiles.")
    elif view.negative.max() > 0:
        step = int(np.argmax(view.negative))
        whose = ", for the action that was taken" if several else ""
        found.append(f"Most negative mass: {view.negative[step]:.2g}, at {recording.place(step)}{whose}.")
    elif (view.distributions >= 0).all():
        found.append("No mass is negative.")
    return found
