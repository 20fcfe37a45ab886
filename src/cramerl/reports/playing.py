"""What the agents of a report predict: one run of each plays for a short while, if its weights were kept.

Playing involves all kinds of games and files, so anything that goes wrong becomes a sentence in the report, not an
error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cramerl.evidence.curves import Curve
from cramerl.evidence.scores import ScoreGroup
from cramerl.evidence.subjects import seed_order
from cramerl.evidence.summary import Summary
from cramerl.reports.distributions import draw_distributions
from cramerl.reports.figures import Figure
from cramerl.reports.labels import short_labels
from cramerl.runs.folder import load_group
from cramerl.watching.recording import Recording, read_evaluation

# They need JAX, which a report of runs that kept no weights must not.
if TYPE_CHECKING:
    from cramerl.runs.agents import Loaded

SIGNED = ("s51", "u51", "l51")  # agents whose masses may be negative
_MOST_STEPS = 200  # that an agent plays
_NO_WEIGHTS = "their weights were not kept"


@dataclass
class Budget:
    """How much may be drawn in one report, and how much has been.

    Attributes:
        figures: most figures of agents.
        seconds: the time after which no further agent plays. Nothing else depends on the speed of the machine; the
            default is far more than the figures need.
        drawn: figures so far.
        spent: seconds so far.
    """

    figures: int = 12
    seconds: float = 120.0
    drawn: int = 0
    spent: float = 0.0


def draw_agents(
    summary: Summary, budget: Budget, on_progress: Callable[[str], None] = lambda message: None
) -> tuple[list[Figure], list[str]]:
    """Draw what one run of each agent predicts on each game; sentences say which have no figure, and why."""
    figures, missing, labels = [], dict[str, list[str]](), short_labels(summary.series)
    own = [group for group in summary.shown if group.config is not None]  # others have no weights that can be read
    if not own:
        return [], []
    # Agents whose masses may be negative come first on each game: readers look for them.
    for group in sorted(own, key=lambda group: (summary.games.index(group.env), group.series.agent not in SIGNED)):
        title = f"{labels[group.series]} on {group.env}"
        found = _draw_group(group, title, budget, on_progress)
        if isinstance(found, str):
            missing.setdefault(found, []).append(title)
        else:
            figures.append(found)
    if not figures and set(missing) == {_NO_WEIGHTS}:
        logged = any("dist/negative_mass" in curve.metrics for curve in summary.curves)
        more = " The table of diagnostics shows the means of their masses." if logged else ""
        return [], [f"There are no figures because the runs did not keep their weights.{more}"]
    sentences = []
    for reason, names in missing.items():
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        sentences.append(f"No figure of {', '.join(names[:5])}{more}: {reason}.")
    return figures, sentences


def draw_process(folder: Path) -> Figure | str:
    """Draw the distributions in a folder that `cramerl evaluate` wrote, or a sentence why that is not possible."""
    try:
        recording = read_evaluation(folder)
        caption = f"{'; '.join(recording.facts).capitalize()}."
        return draw_distributions(recording, f"distributions-{folder.resolve().name}", recording.title, caption)
    except Exception as error:
        return f"No figure of the evaluation in {folder.name}: {_reason(error, folder)}."


def has_weights(folder: Path) -> bool:
    """Whether the folder of a run holds a checkpoint."""
    return any(folder.rglob("checkpoints/*/manifest.json"))


def play(curve: Curve, steps: int) -> tuple[Recording, Loaded]:
    """Play a few steps with a run's agent: always the same steps, because of seed 0 and no random actions.

    Returns:
        The steps, and the weights that were used.
    """
    # Only playing needs JAX; a report of runs that kept no weights must not.
    import jax

    from cramerl.runs.agents import load
    from cramerl.watching.play import Watched, record

    try:
        on_host = jax.default_device(jax.devices("cpu")[0])
    except RuntimeError:  # JAX_PLATFORMS allows only another platform
        on_host = nullcontext()
    with on_host:
        lane = load_group(curve.source).configs.index(curve.config)
        loaded = load(curve.source, lane)
        watched = Watched(curve.agent, curve.config, loaded.agent(curve.source))
        return record([watched], epsilon=0.0, max_steps=steps), loaded


def _draw_group(group: ScoreGroup, title: str, budget: Budget, on_progress: Callable[[str], None]) -> Figure | str:
    """A figure, or why there is none."""
    curve = next(
        (one for one in sorted(group.curves, key=lambda one: seed_order(one.seed)) if has_weights(one.source)), None
    )
    if curve is None:
        return _NO_WEIGHTS
    if group.series.agent == "dqn":
        return "it predicts means, not distributions"
    if budget.drawn >= budget.figures:
        return f"a report has at most {budget.figures}"
    if budget.spent > budget.seconds:
        return f"the {budget.seconds:g} seconds for figures were used up"
    on_progress(f"{group.series.label} plays {group.env} ...")
    began = time.monotonic()
    try:
        recording, loaded = play(curve, _MOST_STEPS)
        trained = curve.last_step if loaded.step is None else loaded.step
        caption = (
            f"Seed {curve.seed} after {trained:,} steps of training plays without random actions: "
            f"{'; '.join(recording.facts[:1])}."
        )
        if loaded.note is not None:
            note = _plain(loaded.note, curve.source)
            caption += f" {note[0].upper()}{note[1:]}."
        figure = draw_distributions(recording, f"distributions-{group.series.label}-{group.env}", title, caption)
    except Exception as error:
        return _reason(error, curve.source)
    finally:
        budget.spent += time.monotonic() - began
    budget.drawn += 1
    return figure


def _reason(error: Exception, folder: Path) -> str:
    """The message of an error, without paths of this machine."""
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed; install it with: pip install 'cramerl[deep]'"
    return _plain(str(error), folder) or type(error).__name__


def _plain(text: str, folder: Path) -> str:
    """A message on one line, without paths of this machine."""
    message = " ".join(text.split())
    for place in (str(folder), str(folder.resolve())):
        message = message.replace(place, folder.name)
    return message[:300].rstrip(". ")
