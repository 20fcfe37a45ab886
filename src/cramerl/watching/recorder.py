"""Recordings of agents of any library: a loop hands over what it sees, does and predicts."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from cramerl._arrays import read_values
from cramerl._checks import require_count, require_log_discount, require_number
from cramerl._extras import require_library
from cramerl._files import require_replaceable
from cramerl.measures import clipped_mass
from cramerl.supports import Support
from cramerl.watching import phenomena
from cramerl.watching.drawings import Palette, draw_cart, draw_observation
from cramerl.watching.page import write_page
from cramerl.watching.picture import require_suffix
from cramerl.watching.recording import (
    MADE_BY,
    Recording,
    Tape,
    View,
    cut_episodes,
    make_view,
    realised_returns,
    return_bounds,
)

_SUFFIXES = (".html", ".htm")
# Returns are sums of rewards, and pages hold them in float32.
_LARGEST = 1e30
# A trained agent with signed masses is well within this of a total of one.
_FAR_FROM_ONE = 0.5
_STEP_BYTES = 400  # of the plain objects that hold a step


class _Step(NamedTuple):
    action: int
    reward: float
    distributions: np.ndarray
    episode: int
    terminated: bool
    truncated: bool


class Recorder:
    """Records an agent of any library, one step at a time, and writes the page of ``cramerl watch``.

    Arrays may be of NumPy, PyTorch or JAX, on any device.

    Args:
        name: of the agent, for the page.
        support: the atoms of its distributions, a `Support` or K numbers; None if it predicts quantiles.
        discount: per step, in [0, 1].
        env: what it plays, for the title. The four numbers of CartPole are drawn as a cart.
        actions: names of the actions; None: "action 0", "action 1", ...
        max_megabytes: the most memory that the recording may take; a step beyond it is a ValueError.

    Example:
        >>> import numpy as np
        >>> recorder = Recorder("C51", np.linspace(-1, 1, 3), discount=0.9, actions=["left", "right"])
        >>> probs = [[0.2, 0.5, 0.3], [0.0, 0.1, 0.9]]  # a row for each action
        >>> recorder.step([0.1, -0.4], action=1, reward=1.0, distributions=probs, terminated=True)
        >>> recorder
        Recorder(C51: 1 step in 1 episode)
        >>> recorder.save("episode.html")  # doctest: +SKIP
    """

    def __init__(
        self,
        name: str,
        support: Support | Any | None,
        *,
        discount: float,
        env: str = "",
        actions: Sequence[str] | None = None,
        max_megabytes: float = 500,
    ):
        self.name, self.env = str(name), str(env)
        self.support = _as_support(support)
        if self.support and max(abs(self.support.v_min), abs(self.support.v_max)) > _LARGEST:
            raise ValueError(f"support must be at most {_LARGEST:g} in size, got {self.support}")
        self.discount = require_log_discount(discount)
        self.actions = None if actions is None else _names(actions)
        self._most_bytes = 1e6 * require_number("max_megabytes", max_megabytes, low=0)
        self.clear()

    def __len__(self) -> int:
        return len(self._steps)

    def __repr__(self) -> str:
        steps, episodes = len(self), self.num_episodes
        counts = f"{steps:,} step{'s' * (steps != 1)} in {episodes:,} episode{'s' * (episodes != 1)}"
        return f"Recorder({self.name}: {counts})"

    @property
    def num_episodes(self) -> int:
        """How many episodes have begun."""
        return self._steps[-1].episode + 1 if self._steps else 0

    def clear(self) -> None:
        """Forget all steps."""
        self._steps: list[_Step] = []
        self._palette, self._tape = Palette(), Tape((1, 1))
        self._seen: tuple[int, ...] = ()
        self._predicted: tuple[int, ...] = ()
        self._bytes = 0

    def step(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        distributions: Any,
        *,
        terminated: Any = False,
        truncated: Any = False,
    ) -> None:
        """Add a step.

        Args:
            observation: what is shown: a vector (D,); a picture (H, W) or (H, W, 3) of uint8 or of numbers in [0, 1],
                such as the frame that an environment renders; a stack of pictures (N, H, W), of which the last is
                shown; or channels (H, W, C) of zeros and ones.
            action: the number of the action that was taken.
            reward: of the step, as the agent learns it.
            distributions: (A, K), what the agent predicted for the observation and each of A actions: masses on the
                atoms (probabilities, not logits), or quantiles of equal mass.
            terminated: whether the episode ended with this step, so that nothing follows.
            truncated: whether a time limit cut the episode after this step.
        """
        seen = read_values("observation", observation)
        predicted = self._checked(read_values("distributions", distributions))
        if self._steps and seen.shape != self._seen:
            raise ValueError(f"observation must have the shape of the first one, {self._seen}, got {seen.shape}")
        taken, chosen = _single("action", action), self.num_actions or len(predicted)
        if taken.dtype.kind not in "iu" or not 0 <= taken < chosen:
            raise ValueError(f"action must be an integer from 0 to {chosen - 1}, got {taken}")
        earned = require_number("reward", float(_single("reward", reward)))
        if abs(earned) > _LARGEST:
            raise ValueError(f"reward must be at most {_LARGEST:g} in size, got {earned}")
        if seen.dtype.kind == "f" and not np.isfinite(seen).all():
            raise ValueError("observation must be finite, got NaN or infinity")
        ends = [bool(_single(name, end)) for name, end in (("terminated", terminated), ("truncated", truncated))]
        if not self._steps and self.support is not None:
            _warn_of_logits(predicted)
        self._append(seen, _Step(int(taken), earned, predicted, self._episode(), *ends))

    @property
    def num_actions(self) -> int | None:
        """How many actions there are; None before the first step, unless they have names."""
        return len(self.actions) if self.actions is not None else (self._predicted[0] if self._steps else None)

    def recording(self, episode: int | Literal["best"] | None = None) -> Recording:
        """The recording, for `cramerl.watching.video.write_video` and `cramerl.watching.picture.write_picture`.

        Args:
            episode: one episode, counted from 0, or "best", the one of the greatest sum of rewards; None: all of them.
        """
        first, last = self._range(episode)
        steps, tape = self._steps[first:last], Tape(self._tape.size, (self._tape[t] for t in range(first, last)))
        action = np.array([one.action for one in steps], np.int32)
        reward = np.array([one.reward for one in steps], np.float32)
        number = np.array([one.episode for one in steps], np.int32)
        terminated = np.array([one.terminated for one in steps])
        cut = ~terminated & np.append(np.diff(number) > 0, True)
        score = np.concatenate([np.cumsum(reward[number == i]) for i in np.unique(number)]) - reward
        return Recording(
            title=f"{self.name} on {self.env}" if self.env else self.name,
            unit="step",
            facts=_facts(score + reward, number, cut),
            actions=list(self.actions or (f"action {i}" for i in range(self._predicted[0]))),
            tape=tape,
            palette=self._palette.colours,
            legend=[],
            caption="" if len(self._seen) > 1 or self._is_cart() else "the observation's numbers as bars",
            action=action,
            views=[self._view(steps, action, reward, terminated, cut)],
            reward=reward,
            score=score.astype(np.float32),
            episode=number,
            realised=realised_returns(reward, terminated, cut, self.discount),
            cut=cut_episodes(terminated, cut),
            returns=return_bounds(reward, self.discount),
        )

    def save(
        self,
        path: str | Path,
        *,
        episode: int | Literal["best"] | None = None,
        highlight: str | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Write the page, one HTML file.

        Args:
            path: the file; an earlier page is replaced.
            episode: one episode, counted from 0, or "best", the one of the greatest sum of rewards; None: all of them.
            highlight: a phenomenon to mark, at whose strongest step the page opens: "double-negative", "compensation"
                or "noise".
            overwrite: whether ``path`` may replace a file that is not such a page.
        """
        require_suffix("path", Path(path), _SUFFIXES)
        if highlight not in (None, *phenomena.MEASURES):
            raise ValueError(f"highlight must be one of {', '.join(phenomena.MEASURES)}, got {highlight!r}")
        require_library("jinja2")
        require_replaceable("path", Path(path), MADE_BY, overwrite=overwrite)
        return write_page(self.recording(episode), path, highlight=highlight)

    def _checked(self, predicted: np.ndarray) -> np.ndarray:
        """Distributions of the shape that belongs to the actions and the atoms, as float32."""
        atoms = self.support.num_atoms if self.support else None
        actions = self.num_actions
        fits = predicted.ndim == 2 and predicted.size > 0
        fits = fits and (atoms or predicted.shape[1]) == predicted.shape[1]
        if not fits or (actions or len(predicted)) != len(predicted):
            wanted = f"({actions or 'A'}, {atoms or 'K'}), {actions or 'A'} actions and {atoms or 'K'} "
            wanted += "atoms" if atoms else "quantiles"
            hint = "; of a batch of one, hand over its first element" if predicted.ndim == 3 else ""
            raise ValueError(f"distributions must have shape {wanted}, got {predicted.shape}{hint}")
        if self._steps and predicted.shape != self._predicted:
            raise ValueError(
                f"distributions must have the shape of the first ones, {self._predicted}, got {predicted.shape}"
            )
        wrong = ~(np.abs(predicted) <= _LARGEST)  # NaN too
        if wrong.any():
            raise ValueError(
                f"distributions must be finite and at most {_LARGEST:g} in size, got {predicted[wrong][0]}"
            )
        return predicted.astype(np.float32)

    def _append(self, seen: np.ndarray, step: _Step) -> None:
        drawn = draw_cart(seen) if self._is_cart(seen) else draw_observation(seen)
        used = self._bytes + self._tape.num_bytes + step.distributions.nbytes + _STEP_BYTES + drawn.nbytes // 3
        if used > self._most_bytes:
            full = f"{self._most_bytes / 1e6:g} MB are full after {len(self):,} steps"
            raise ValueError(f"max_megabytes must hold the recording, but {full}: save it, and call clear()")
        picture = self._palette.indices(drawn)
        if not self._steps:
            self._seen, self._predicted, self._tape = seen.shape, step.distributions.shape, Tape(picture.shape)
        self._tape.append(picture)
        self._steps.append(step)
        self._bytes += step.distributions.nbytes + _STEP_BYTES

    def _episode(self) -> int:
        """The number of the episode that the next step belongs to."""
        if not self._steps:
            return 0
        last = self._steps[-1]
        return last.episode + (last.terminated or last.truncated)

    def _range(self, episode: int | str | None) -> tuple[int, int]:
        """The first step of the chosen episodes, and the one after the last."""
        if not self._steps:
            raise ValueError("the recorder holds no step yet: call step(...) in the loop before it is saved")
        numbers = np.array([one.episode for one in self._steps])
        if episode is None:
            return 0, len(self)
        if episode == "best":
            episode = int(np.argmax(np.bincount(numbers, [one.reward for one in self._steps])))
        elif isinstance(episode, str):
            raise ValueError(f"episode must be an integer, 'best' or None, got {episode!r}")
        chosen = np.flatnonzero(numbers == require_count("episode", episode, 0, self.num_episodes - 1))
        return int(chosen[0]), int(chosen[-1]) + 1

    def _view(
        self, steps: list[_Step], action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, cut: np.ndarray
    ) -> View:
        distributions = np.stack([one.distributions for one in steps])
        if self.support is None:
            return make_view(self.name, None, distributions, distributions.mean(axis=-1), action)
        values = distributions @ self.support.atoms.astype(np.float32)
        view = make_view(self.name, self.support.atoms, distributions, values, action)
        following = np.roll(distributions[np.arange(len(steps)), values.argmax(axis=1)], -1, axis=0)
        discounts = np.where(terminated, 0, self.discount).astype(np.float32)
        clipped = clipped_mass(self.support, reward, discounts, following)
        return view._replace(clipped=np.where(cut, np.nan, clipped))  # what follows a cut was not seen

    def _is_cart(self, seen: np.ndarray | None = None) -> bool:
        return self.env.startswith("CartPole") and (self._seen if seen is None else seen.shape) == (4,)


def _as_support(support: Any) -> Support | None:
    if support is None or isinstance(support, Support):
        return support
    try:
        return Support(read_values("support", support))
    except ValueError as error:
        raise ValueError(f"support must be a Support, its atoms, or None for quantiles: {error}") from None


def _names(actions: Any) -> list[str]:
    names = [] if isinstance(actions, str) else list(actions)
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"actions must be a list of names, got {actions!r}")
    return names


def _single(name: str, value: Any) -> np.ndarray:
    """One number, which may come as an array of one."""
    found = read_values(name, value)
    if found.size != 1:
        raise ValueError(f"{name} must be one number, got shape {found.shape}")
    return found.reshape(())


def _warn_of_logits(masses: np.ndarray) -> None:
    """Warn if masses do not look like masses: those of a signed agent, too, sum to about one."""
    totals = masses.sum(axis=-1)
    if np.abs(totals - 1).max() > _FAR_FROM_ONE:
        warnings.warn(
            f"distributions should be masses that sum to about 1 for each action, got sums from {totals.min():.3g} to "
            f"{totals.max():.3g}: are they logits?",
            stacklevel=3,
        )


def _facts(scores: np.ndarray, number: np.ndarray, cut: np.ndarray) -> list[str]:
    ends = np.flatnonzero(np.append(np.diff(number) > 0, True))
    if len(ends) > 1:
        low, high = scores[ends].min(), scores[ends].max()
        return [f"{len(ends):,} episodes of {len(number):,} steps in all, with scores from {low:,.6g} to {high:,.6g}"]
    end = "cut off before the end of the episode" if cut[-1] else "the episode ended"
    return [f"score {scores[-1]:,.6g} after {len(number):,} steps ({end})"]
