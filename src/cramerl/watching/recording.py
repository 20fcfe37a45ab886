"""A recording: what was seen, done and predicted, step by step. Pages, videos and pictures are drawn from one.

`cramerl.watching.play` records agents; `read_evaluation` makes a recording of the states of an evaluated process.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from cramerl import plots
from cramerl._folders import EVALUATION_FILE, LOG_BYTES
from cramerl.runs.folder import read_object
from cramerl.watching.worlds import draw_states

# Imported when an evaluation is read: it takes a second, in which a command has said nothing.
if TYPE_CHECKING:
    from cramerl.linear.evaluation_file import EvaluationRecord

MADE_BY = "cramerl watch"
"""What pages, pictures and videos of recordings say they were made by."""
_WITHIN = 0.01  # how well the return of an episode that was cut off must be known
_CHUNK_BYTES = 1_000_000  # what a browser unpacks in the time of a frame or two


class Chunk(NamedTuple):
    """Consecutive steps: how many there are, and their bytes, compressed by zlib."""

    steps: int
    data: bytes


class Tape:
    """The pictures of a recording in little memory: compressed chunks, in the format that the page reads.

    A chunk holds its first picture as it is and each of the others as exclusive-or with the one before.

    Args:
        size: height and width of a picture.
        pictures: the first ones, see `append`.
    """

    def __init__(self, size: tuple[int, int], pictures: Iterable[np.ndarray] = ()):
        self.size = size
        self._per_chunk = max(16, min(512, _CHUNK_BYTES // (size[0] * size[1])))
        self._chunks: list[Chunk] = []
        self._open: list[np.ndarray] = []
        self._unpacked: tuple[int, np.ndarray] | None = None
        for picture in pictures:
            self.append(picture)

    def __len__(self) -> int:
        return sum(chunk.steps for chunk in self._chunks) + len(self._open)

    @property
    def num_bytes(self) -> int:
        """Memory that the pictures take."""
        return sum(len(chunk.data) for chunk in self._chunks) + sum(picture.nbytes for picture in self._open)

    def append(self, picture: np.ndarray) -> None:
        """Add a picture: (H, W) uint8, indices of colours."""
        if picture.shape != self.size or picture.dtype != np.uint8:
            raise ValueError(f"picture must be uint8 of shape {self.size}, got {picture.dtype} of {picture.shape}")
        self._open.append(picture.copy())
        if len(self._open) == self._per_chunk:
            self._close_chunk()

    def __getitem__(self, index: int) -> np.ndarray:
        """The picture at a position counted from 0."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        number, position = divmod(index, self._per_chunk)
        if number == len(self._chunks):
            return self._open[position]
        if self._unpacked is None or self._unpacked[0] != number:
            chunk = self._chunks[number]
            flat = np.frombuffer(zlib.decompress(chunk.data), np.uint8).reshape(chunk.steps, *self.size)
            self._unpacked = number, np.bitwise_xor.accumulate(flat, axis=0)
        return self._unpacked[1][position]

    def chunks(self) -> list[Chunk]:
        """All chunks. No picture may be added afterwards."""
        if self._open:
            self._close_chunk()
        return self._chunks

    def _close_chunk(self) -> None:
        pictures = np.stack(self._open)
        pictures[1:] ^= pictures[:-1].copy()
        self._chunks.append(Chunk(len(pictures), zlib.compress(pictures.tobytes(), 9)))
        self._open = []


class View(NamedTuple):
    """What one agent predicts along a recording of T steps with A actions.

    Attributes:
        name: the agent's name on the page.
        kind: "masses" on fixed atoms, or "quantiles": K atoms of mass 1 / K each (one atom for dqn).
        atoms: (K,) the fixed atoms; empty for quantiles.
        distributions: (T, A, K) float32, signed masses, or the atoms of quantiles.
        values: (T, A) float32, the means by which the agent compares actions.
        total: (T,) total mass of the distribution of the action that was taken.
        negative: (T,) negative mass of that distribution, as a positive number.
        clipped: (T,) fraction of the next distribution's mass that the backup of this step clips.
    """

    name: str
    kind: Literal["masses", "quantiles"]
    atoms: np.ndarray
    distributions: np.ndarray
    values: np.ndarray
    total: np.ndarray
    negative: np.ndarray
    clipped: np.ndarray

    def distribution(self, step: int, action: int) -> tuple[np.ndarray, np.ndarray]:
        """Atoms and masses of one distribution."""
        distribution = self.distributions[step, action]
        if self.kind == "masses":
            return self.atoms, distribution
        return distribution, np.full(distribution.size, 1 / distribution.size, distribution.dtype)

    def mean_label(self, step: int, action: int) -> str:
        """The mean in words, with an arrow if it lies outside the support, as the mean of signed masses may."""
        mean = float(self.values[step, action])
        low, high = (self.atoms[0], self.atoms[-1]) if self.kind == "masses" else (mean, mean)
        return f"{'← ' if mean < low else ''}mean {mean:.2f}{' →' if mean > high else ''}"

    def of_actions(self, action: np.ndarray) -> np.ndarray:
        """The distributions (T, K) of the actions (T,)."""
        return np.take_along_axis(self.distributions, action[:, None, None].astype(int), axis=1)[:, 0]

    def limits(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Limits of returns and of masses for charts of the whole recording; 1 % of the steps may exceed them."""
        if self.kind == "masses":
            low = float(np.quantile(self.distributions.min(axis=(1, 2)), 0.01))
            high = float(np.quantile(self.distributions.max(axis=(1, 2)), 0.99))
            spacing = float(np.diff(self.atoms).min(initial=np.inf)) if self.atoms.size > 1 else 0.2
            return plots.return_limits(self.atoms[0], self.atoms[-1], spacing), plots.mass_limits(low, high)
        returns = np.quantile(self.distributions, [0.001, 0.999])
        return plots.return_limits(*returns), plots.mass_limits(0.0, 1 / self.distributions.shape[2])

    def draw(self, ax: Any, step: int, action: int, *, realised: float | None = None, name: str | None = None) -> None:
        """Draw one distribution with `plots.draw_distribution`."""
        atoms, masses = self.distribution(step, action)
        mean, sticks = float(self.values[step, action]), self.kind == "quantiles"
        plots.draw_distribution(ax, atoms, masses, mean, name, realised=realised, sticks=sticks)


@dataclass(frozen=True)
class Recording:
    """A recording of T steps of an agent, or of T states of a process.

    Attributes:
        title: what it shows.
        unit: "step" or "state".
        facts: sentences about it.
        actions: names of the A actions.
        tape: T pictures, as indices of colours.
        palette: (P, 3) uint8, the colours.
        legend: what colours mean, as pairs of a name and a colour such as "#56B4E9".
        caption: what the picture is.
        action: (T,) action taken at each step.
        views: one for each agent; the actions are the first agent's.
        reward: (T,) reward of the step, in the game's points.
        score: (T,) points before the step, in its episode.
        episode: (T,) number of the episode, from 0.
        realised: (T,) realised return from the step on, discounted, in the learner's rewards; NaN if unknown because
            the episode was cut off, see ``realised_returns``.
        visits: (T,) fraction of time that a process spends in each state; None for an agent.
        labels: (T,) names of the states of a process; empty for an agent.
        cut: (T,) whether the step's episode was cut off; None if none was.
        returns: least and greatest return that rewards like those of the recording add up to (``return_bounds``); None
            if that is not known.
    """

    title: str
    unit: Literal["step", "state"]
    facts: list[str]
    actions: list[str]
    tape: Tape
    palette: np.ndarray
    legend: list[tuple[str, str]]
    caption: str
    action: np.ndarray
    views: list[View]
    reward: np.ndarray
    score: np.ndarray
    episode: np.ndarray
    realised: np.ndarray
    visits: np.ndarray | None = None
    labels: tuple[str, ...] = ()
    cut: np.ndarray | None = None
    returns: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self.action)

    def place(self, step: int) -> str:
        """The name of a step or state, such as "step 1,234"."""
        return f"{self.unit} {self.labels[step] if self.labels else f'{step:,}'}"

    def picture(self, step: int) -> np.ndarray:
        """The picture of a step: (H, W, 3) uint8."""
        return self.palette[self.tape[step]]


def make_view(
    name: str, atoms: np.ndarray | None, distributions: np.ndarray, values: np.ndarray, action: np.ndarray
) -> View:
    """A view with its total and negative masses; ``clipped`` is zero. ``atoms`` is None for quantiles."""
    distributions, values = np.asarray(distributions, np.float32), np.asarray(values, np.float32)
    if not (np.isfinite(distributions).all() and np.isfinite(values).all()):
        raise ValueError(f"{name} predicts numbers that are not finite; its weights cannot be used")
    zeros = np.zeros(len(distributions), np.float32)
    if atoms is None:
        return View(name, "quantiles", np.zeros(0), distributions, values, zeros + 1, zeros, zeros)
    view = View(name, "masses", np.asarray(atoms), distributions, values, zeros, zeros, zeros)
    taken = view.of_actions(action)
    return view._replace(total=taken.sum(axis=1), negative=np.maximum(-taken, 0).sum(axis=1))


def realised_returns(rewards: np.ndarray, terminated: np.ndarray, cut: np.ndarray, discount: float) -> np.ndarray:
    """Discounted sums (T,) of the rewards that followed.

    Where the episode was cut off, a sum is given if later rewards, none larger than those of the recording, could
    change it by 1 % at most. Otherwise it is NaN.

    Args:
        rewards: (T,) as the learner sees them.
        terminated: (T,) whether nothing follows the step for the learner.
        cut: (T,) whether the recording or a time limit ended the episode here.
        discount: per step.
    """
    realised, later, missing = np.full(len(rewards), np.nan, np.float32), 0.0, np.inf
    largest = float(np.max(np.abs(rewards), initial=0))
    beyond = largest / (1 - discount) if largest > 0 and discount < 1 else np.inf  # the most that can follow a cut
    for t in reversed(range(len(rewards))):
        if terminated[t] or cut[t]:
            later, missing = 0.0, 0.0 if terminated[t] else beyond
        later, missing = float(rewards[t]) + discount * later, missing * discount if missing else 0.0
        realised[t] = later if missing <= _WITHIN * abs(later) else np.nan
    return realised


def cut_episodes(terminated: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """Whether each step (T,) belongs to an episode that was cut off; arguments as in ``realised_returns``."""
    found, later = np.zeros(len(cut), bool), False
    for t in reversed(range(len(cut))):
        later = not terminated[t] and (bool(cut[t]) or later)
        found[t] = later
    return found


def return_bounds(rewards: np.ndarray, discount: float) -> tuple[float, float] | None:
    """The least and the greatest return of rewards as small and as large as these, in an episode that may end at once.

    None if they tell nothing: all of them are zero, or without a discount.
    """
    low, high = float(np.min(rewards, initial=0)), float(np.max(rewards, initial=0))
    return (low / (1 - discount), high / (1 - discount)) if low < high and discount < 1 else None


def is_evaluation(folder: str | Path) -> bool:
    """Whether ``cramerl evaluate`` wrote the folder."""
    return (Path(folder) / EVALUATION_FILE).is_file()


def read_evaluation(folder: str | Path) -> Recording:
    """The states that ``cramerl evaluate`` evaluated as a recording, in the order of their numbers."""
    from cramerl.linear.evaluation_file import parse_record

    return read_object(
        Path(folder),
        EVALUATION_FILE,
        lambda values: _evaluated(parse_record(values), Path(folder).resolve().name),
        most=LOG_BYTES,
    )


def _evaluated(found: EvaluationRecord, name: str) -> Recording:
    masses, means, visits = (part.astype(np.float32) for part in (found.masses, found.means, found.visited))
    zeros = np.zeros(len(means), np.int32)
    process = re.sub(r"^\w+\((.*)\)$", r"\1", found.process or "a log of transitions")
    when = {"before": "before each backup", "after": "after each backup"}.get(found.normalisation, "by the solution")
    facts = [f"{len(means):,} states shown", f"the total mass is kept at one {when}"]
    if found.residual is not None:
        facts.append(f"the equations are solved to {found.residual:.1e}")
    view = make_view("prediction", found.atoms, masses[:, None], means[:, None], zeros)
    unseen = np.where(visits > 0, 0, np.nan).astype(np.float32)  # nothing is predicted where no time is spent
    pictures = draw_states(means, visits, found.grid)
    return Recording(
        title=f"{name}: {process}",
        unit="state",
        facts=facts,
        actions=["distribution of the return"],
        tape=Tape(pictures.size, pictures.each),
        palette=np.array([list(bytes.fromhex(colour[1:])) for colour in pictures.colours], np.uint8),
        legend=pictures.legend,
        caption=pictures.caption,
        action=zeros,
        views=[view._replace(total=view.total + unseen, negative=view.negative + unseen)],
        reward=zeros,
        score=zeros,
        episode=zeros,
        realised=np.full(len(means), np.nan, np.float32),
        visits=visits,
        labels=tuple(_label(found, i) for i in range(len(means))),
    )


def _label(found: EvaluationRecord, i: int) -> str:
    return f"{found.states[i]}{f', {found.grid.label(i)}' if found.grid else ''}"
