"""Transitions in Minari datasets: ``pip install 'cramerl[data]'``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cramerl._checks import require_count
from cramerl._extras import load_library
from cramerl.linear.sources.chunks import regroup
from cramerl.linear.transitions import Chunk, Rows


def read_minari(
    dataset: Any, feature_function: Callable[[Any], ArrayLike], *, chunk_rows: int = 200_000
) -> Iterator[Chunk]:
    """Transitions from the episodes of a Minari dataset, a chunk at a time.

    Every step of every episode is a transition, including the last. If the episode terminated, the return ends there.
    If it was only truncated it does not: Minari keeps the observation after the last step, which is the next state.

    Args:
        dataset: a ``minari.MinariDataset``, or the name of one on this machine, such as "D4RL/pointmaze/open-v2".
        feature_function: features (T + 1, D) of the T + 1 observations of an episode. Its argument is what Minari
            stores: an array, or for composite spaces a dictionary or tuple of arrays.
        chunk_rows: most rows in a chunk; an episode is never cut.

    Returns:
        An iterator over chunks (X, rewards, X_next, terminated).
    """
    require_count("chunk_rows", chunk_rows)
    if isinstance(dataset, str):
        minari = load_library("minari")
        try:
            dataset = minari.load_dataset(dataset)
        except FileNotFoundError:
            raise ValueError(
                f"dataset must be a Minari dataset on this machine (fetch one with `minari download`), got {dataset!r}"
            ) from None
        except ImportError as error:  # such as h5py, which is an extra of minari
            raise ValueError(f"read_minari needs a package that is not installed: {error}") from None
    if not hasattr(dataset, "iterate_episodes"):
        raise ValueError(f"dataset must be a MinariDataset or the name of one, got {type(dataset).__name__}")

    def transitions(episode: Any) -> Rows:
        table, rewards = (np.asarray(a, np.float64) for a in (feature_function(episode.observations), episode.rewards))
        if table.ndim != 2 or len(table) != len(rewards) + 1:
            allowed = f"one row of features for each of the {len(rewards) + 1} observations of an episode"
            raise ValueError(f"feature_function must return {allowed}, got shape {table.shape}")
        return Rows(table[:-1], rewards, table[1:], np.asarray(episode.terminations, dtype=bool))

    return (chunk[:4] for chunk in regroup(map(transitions, dataset.iterate_episodes()), chunk_rows))
