"""Pictures of the distributions that a recording holds: a few of its moments, a panel for each action."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cramerl import plots
from cramerl.report.figures import Figure
from cramerl.report.hover import Panel, Trace
from cramerl.watch.recording import Recording, View

LEAST = 5e-3  # negative mass that two digits tell from none
_ACTIONS, _MOMENTS = 4, 3  # side by side, and below each other


class Moment(NamedTuple):
    """A step or a state of a recording, and why it is shown."""

    step: int
    why: str


def moments_of(recording: Recording) -> list[Moment]:
    """Start, middle and the most negative mass of an episode; its end where that leaves room.

    Of an evaluated process the state that is visited most takes the place of the start.
    """
    negative, last = recording.views[0].negative, len(recording) - 1
    states = recording.unit == "state"
    found = {int(np.argmax(recording.visits)): ["most visited"]} if states else {0: ["start"]}
    found.setdefault(len(recording) // 2, []).append("middle")
    if negative.max() > LEAST:
        found.setdefault(int(np.argmax(negative)), []).append("most negative mass")
    if len(found) < _MOMENTS and not states and last not in found:
        found[last] = ["end"]
    return [Moment(step, ", ".join(why)) for step, why in found.items()]


def draw_distributions(recording: Recording, name: str, title: str, caption: str) -> Figure:
    """The distributions of the first view: a column for each action, a row for each step, the game beside them."""
    moments, actions = moments_of(recording), _actions(recording)
    alone = len(recording.actions) == 1
    rows, columns = (1, len(moments)) if alone else (len(moments), 1 + len(actions))
    shape = {"width": 3.0} if alone else {"width": 2.6, "first": 0.6}
    figure, axes = plots.new_figure(columns, rows=rows, height=2.1, **shape)
    grid = np.reshape(axes, (rows, columns))
    panels: list[Panel] = []
    titles: dict[str, str] = {}
    for row, moment in enumerate(moments):
        if alone:
            places = [(grid[0, row], 0)]
        else:
            _draw_game(grid[row, 0], recording, moment)
            places = list(zip(grid[row, 1:], actions, strict=True))
        for ax, action in places:
            distribution = f"distribution-{row}-{action}"
            panels.append(_draw_panel(ax, recording, moment, action, distribution))
            titles |= _titles(recording, moment, action, distribution)
        plots.share_limits([ax for ax, _ in places], "y")
        places[0][0].set_ylabel("mass", fontsize=8)
    for ax in grid[-1]:
        ax.set_xlabel("return" if ax.axison else "", fontsize=8)
    plots.add_distribution_legend(figure, negative=any(shape.endswith("negative") for shape in titles))
    return Figure(name, title, " ".join([caption, *_words(recording, moments, actions)]), figure, panels, titles)


def _actions(recording: Recording) -> list[int]:
    """Those taken at the moments shown, then those worth most there; in the game's order."""
    steps = [moment.step for moment in moments_of(recording)]
    values = recording.views[0].values[steps].max(axis=0)
    taken = list(dict.fromkeys(int(recording.action[step]) for step in steps))
    others = [int(action) for action in np.argsort(-values, kind="stable") if int(action) not in taken]
    return sorted([*taken, *others][:_ACTIONS])


def _draw_game(ax: Any, recording: Recording, moment: Moment) -> None:
    ax.imshow(recording.palette[recording.tape[moment.step]], interpolation="nearest", aspect=1.0)
    ax.set_axis_off()
    ax.set_title(f"{moment.why}\n{_place(recording, moment)}", fontsize=9, loc="left")


def _place(recording: Recording, moment: Moment) -> str:
    return f"{recording.unit} {recording.labels[moment.step] if recording.labels else f'{moment.step:,}'}"


def _draw_panel(ax: Any, recording: Recording, moment: Moment, action: int, distribution: str) -> Panel:
    view, step = recording.views[0], moment.step
    atoms, masses = view.distribution(step, action)
    view.draw(ax, step, action, name=distribution)
    ax.set_xlim(view.limits()[0])
    ax.tick_params(labelsize=7)
    chosen = len(recording.actions) > 1 and action == recording.action[step]
    name = recording.actions[action] if len(recording.actions) > 1 else f"{_place(recording, moment)}, {moment.why}"
    heading = f"{name}{', chosen' if chosen else ''}\n{view.mean_label(step, action)}"
    ax.set_title(heading, fontsize=8, loc="left", fontweight="bold" if chosen else "normal")
    if chosen:
        ax.spines[:].set(visible=True, linewidth=1.6)
    negative = _negative(view, step, action)
    if negative > LEAST:
        ax.set_title(f"negative {negative:.2f}", fontsize=8, loc="right", color=plots.NEGATIVE, fontweight="bold")
    words = [f"return {atom:.4g}" for atom in atoms]
    nothing = np.full(len(atoms), np.nan)
    traces = [
        Trace(label, colour, words, atoms, np.where(there, masses, np.nan), nothing, nothing)
        for label, colour, there in (
            ("mass", plots.POSITIVE, masses >= 0),
            ("negative mass", plots.NEGATIVE, masses < 0),
        )
        if there.any()
    ]
    where = _place(recording, moment) + (f", {recording.actions[action]}" if len(recording.actions) > 1 else "")
    return Panel(where, ax, traces)


def _negative(view: View, step: int, action: int) -> float:
    return float(np.maximum(-view.distribution(step, action)[1], 0).sum())


def _titles(recording: Recording, moment: Moment, action: int, distribution: str) -> dict[str, str]:
    view = recording.views[0]
    if view.kind != "masses":
        return {}
    masses = view.distribution(moment.step, action)[1]
    words = {f"{distribution}-positive": f"positive mass {float(np.maximum(masses, 0).sum()):.3g}"}
    if (masses < 0).any():
        words[f"{distribution}-negative"] = f"negative mass {_negative(view, moment.step, action):.3g}"
    return words


def _words(recording: Recording, moments: list[Moment], actions: list[int]) -> list[str]:
    view, words = recording.views[0], []
    if len(actions) < len(recording.actions):
        words.append(
            f"Shown are {len(actions)} of {len(recording.actions)} actions: those taken, then those worth most."
        )
    if view.kind == "quantiles":
        words.append("Sticks of equal mass stand at the quantiles it predicts.")
    elif view.negative.max() > 0:
        most = Moment(int(np.argmax(view.negative)), "")
        words.append(
            f"Most negative mass: {view.negative[most.step]:.2g}, at {_place(recording, most)}"
            f"{', of the action that was taken' if len(recording.actions) > 1 else ''}."
        )
    elif (view.distributions >= 0).all():
        words.append("No mass is negative.")
    return words
