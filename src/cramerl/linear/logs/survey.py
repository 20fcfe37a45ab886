"""What a log holds, counted over its blocks, and what was decided about it, in sentences."""

from __future__ import annotations

import math
from typing import NamedTuple

from cramerl.linear.logs.clocks import Shares, Tally, choose_shares
from cramerl.linear.logs.episodes import Outline, clock_values
from cramerl.linear.logs.layout import LogLayout
from cramerl.linear.logs.records import Records


class LogCounts(NamedTuple):
    """What was counted in a log."""

    rows: int = 0
    transitions: int = 0
    episodes: int = 0
    complete: int = 0
    """Episodes whose end is in the log."""
    truncated: int = 0
    """Episodes whose end is not."""
    dropped: int = 0
    """Rows that have no next row and were left out: the last ones of truncated episodes."""
    final_observations: int = 0
    """Rows that are only the next state of the row before."""
    marked_both: int = 0
    """Rows marked terminated and truncated: the return ended there."""
    paid: int = 0
    """Transitions with a reward that is not zero."""
    paid_dropped: int = 0
    """Rows that were left out with one."""
    weight_removed: float = 0.0
    """Weight taken from the last rows of complete episodes, to make up for the rows that were left out."""

    @property
    def errors_at_cuts(self) -> float:
        """By how many standard errors rewards are more frequent in the rows that were left out; NaN without such."""
        if not (self.dropped and self.transitions):
            return math.nan
        share = (self.paid + self.paid_dropped) / (self.transitions + self.dropped)
        error = math.sqrt(share * (1 - share) * (1 / self.transitions + 1 / self.dropped))
        return (self.paid_dropped / self.dropped - self.paid / self.transitions) / error if error else 0.0


class Survey:
    """Counts over blocks of whole episodes."""

    def __init__(self, layout: LogLayout):
        self._layout, self.counts, self._weight = layout, LogCounts(), 0.0
        self._step, self._time = Tally.empty(), None if layout.time is None else Tally.empty()

    def add(self, records: Records, found: Outline) -> None:
        """Count these rows too."""
        acts = ~found.final
        self._weight += float(acts.sum() if records.weights is None else records.weights[acts & ~found.cut].sum())
        complete, episodes = int(found.complete.sum()), int(found.first.sum())
        new = LogCounts(
            rows=records.num_rows,
            transitions=int((acts & ~found.cut).sum()),
            episodes=episodes,
            complete=complete,
            truncated=episodes - complete,
            dropped=int(found.cut.sum()),
            final_observations=int(found.final.sum()),
            marked_both=int((found.ended & records.truncated).sum()),
            paid=int((acts & ~found.cut & (records.rewards != 0)).sum()),
            paid_dropped=int((found.cut & (records.rewards != 0)).sum()),
        )
        self.counts = LogCounts(*(old + more for old, more in zip(self.counts, new, strict=True)))  # pyright: ignore[reportArgumentType]
        if not self._layout.next_state:
            self._step = self._step.add(clock_values("step", records, found)[acts], found.cut[acts], found.ended[acts])
            if self._time is not None:
                time = clock_values("time", records, found)
                self._time = self._time.add(time[acts], found.cut[acts], found.ended[acts])

    def shares(self) -> Shares | None:
        """How often rows that go on are cut, where this matters: where rows were left out and others ended."""
        if not (self.counts.dropped and self._step.ended.sum()):
            return None
        return choose_shares(self._step, self._time)

    def counted(self, shares: Shares | None) -> LogCounts:
        """The counts, with the weight that the shares take from rows that ended."""
        if shares is None:
            return self.counts
        tally = self._time if shares.clock == "time" and self._time is not None else self._step
        return self.counts._replace(weight_removed=float((tally.ended * shares.at(tally.values)).sum()))

    def require_transitions(self) -> None:
        """Raise ValueError if there is nothing to learn from."""
        if not self.counts.transitions:
            raise ValueError(
                f"source must hold at least one row with a next row, or one where the return ended, "
                f"got {self.counts.rows} rows in {self.counts.episodes} episodes"
            )
        if self.counts.dropped and not self._step.kept.sum():
            raise ValueError(
                f"source must hold rows that are followed by others, or columns of next states (next_state), got "
                f"{self.counts.dropped:,} rows that go on, each the last of its episode"
            )
        if not self._weight > 0:
            raise ValueError(f"weight must hold at least one number > 0, got only 0 in column {self._layout.weight!r}")


def sentences(layout: LogLayout, counts: LogCounts, shares: Shares | None) -> list[str]:
    """What was decided about a log."""
    found = [_next_rows(layout)]
    if counts.final_observations:
        found.append(f"{_rows(counts.final_observations)} without a reward or an action: only next states.")
    if not layout.terminated:
        found.append("No terminated column is named: no return ends in this log.")
    if counts.marked_both:
        found.append(f"{_rows(counts.marked_both)} marked terminated and truncated: the return ended there.")
    if counts.dropped:
        found.append(
            f"{counts.dropped:,} of {counts.episodes:,} episodes are cut: the next state of their last row is not in "
            f"the log, so these {counts.dropped:,} rows are left out."
        )
    if shares is not None:
        found.append(_rule(shares, counts, layout))
    return found


def _next_rows(layout: LogLayout) -> str:
    if layout.next_state and layout.episode is None:
        return (
            "Next states are in columns of their own, and no episode column is named: every row is taken for an "
            "episode of its own, and intervals, which need episodes, would be too narrow."
        )
    if layout.next_state:
        return "Next states are in columns of their own: no row is left out for want of a next one."
    order = "the order of the rows" if layout.time is None else f"order of {layout.time}"
    if layout.episode is None:
        return f"No episode column is named: the whole log is one episode, in {order}."
    return f"The next state is that of the next row of the same {layout.episode}, in {order}."


def _rule(shares: Shares, counts: LogCounts, layout: LogLayout) -> str:
    clock = {
        "step": "the step of the episode",
        "time": f"the value of {layout.time}",
        "constant": "nothing (a constant share of rows)",
    }[shares.clock]
    clock += f" (in {len(shares.values)} spans)" if shares.spans else ""
    return (
        f"So that rows that ended are not too many among those kept, each weighs the share of the rows going on that "
        f"was kept; that share depends on {clock}. This takes {counts.weight_removed:.4g} from the weight of "
        f"{counts.complete:,} rows that ended. It is fair if cutting does not depend on what would have happened next."
    )


def _rows(count: int) -> str:
    return f"{count:,} row is" if count == 1 else f"{count:,} rows are"
