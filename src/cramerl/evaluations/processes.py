"""What `cramerl evaluate PROCESS` does: from words on a command line to an evaluation, its files and its picture."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from cramerl import linear, plots
from cramerl._arrays import Floats
from cramerl._extras import load_library
from cramerl._folders import EVALUATION_FILE
from cramerl.linear import Evaluation, MarkovRewardProcess
from cramerl.linear.evaluation_file import MADE_BY, write_process_record
from cramerl.linear.examples import gridworld, queue, random_walk, ring

PICTURE = "evaluation.png"
FILES = (EVALUATION_FILE, PICTURE)
"""What an evaluation writes into its folder."""
EXAMPLES: dict[str, Callable[..., MarkovRewardProcess]] = {
    "random-walk": random_walk,
    "ring": ring,
    "gridworld": gridworld,
    "queue": queue,
}
# Name -> builder from (number of states, the number after the colon).
FEATURES: dict[str, Callable[[int, int], Floats]] = {
    "aggregation": linear.aggregation,
    "polynomial": lambda states, degree: linear.polynomial(np.arange(states), degree),
    "fourier": lambda states, order: linear.fourier(np.arange(states), order),
    "rbf": lambda states, centres: linear.rbf(np.arange(states), centres),
    "random": lambda states, number: linear.random_features(states, number, seed=0),
}


def named_process(name: str, policy: str, discount: float) -> MarkovRewardProcess:
    """A built-in example by its name, or a tabular Gymnasium environment by its id, under a policy."""
    if name in EXAMPLES:
        if policy != "uniform":
            raise ValueError(f"policy must be 'uniform' for {name}, which has no actions, got {policy!r}")
        return EXAMPLES[name](discount=discount)
    gymnasium = load_library("gymnasium")
    try:
        gymnasium.spec(name)
    except (gymnasium.error.Error, ValueError) as error:
        known = ", ".join(EXAMPLES)
        given = f"got {name!r} ({error})"
        raise ValueError(f"process must be {known} or the id of a tabular Gymnasium environment, {given}") from None
    return MarkovRewardProcess.from_gymnasium(name, load_policy(policy), discount)


def load_policy(policy: str) -> Any:
    """The word "uniform", or an array of probabilities or actions from a .npy or .csv file."""
    if policy == "uniform":
        return policy
    path = Path(policy)
    if path.suffix not in (".npy", ".csv"):
        raise ValueError(f"policy must be 'uniform' or a .npy or .csv file, got {policy!r}")
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise ValueError(f"policy must be a file of numbers, got {policy!r}, which is not a regular file")
    try:
        with warnings.catch_warnings(), path.open("rb") as file:
            warnings.simplefilter("error")  # NumPy only warns about an empty file
            read = np.lib.format.read_array if path.suffix == ".npy" else _read_csv
            table = read(file)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, MemoryError, RuntimeError, UserWarning, TokenError):
        raise ValueError(f"policy must be a file of numbers, got {policy!r}, which cannot be read as one") from None
    whole = table.ndim == 1 and table.dtype.kind == "f" and (table == np.floor(table)).all()
    return table.astype(int) if whole else table  # a .csv file cannot say that its numbers are integers


def _read_csv(file: Any) -> Any:
    return np.loadtxt(file, delimiter=",")


def named_features(text: str, process: MarkovRewardProcess, *, bias: bool) -> Floats:
    """Features from text such as "tabular", "fourier:5" or "aggregation:20".

    "tabular" has a feature for each state that the policy visits; nothing can be learned about the others.
    """
    num_states = process.num_states
    if text == "tabular":
        return linear.tabular(num_states)[:, process.stationary_distribution() > 0]
    name, _, number = text.partition(":")
    if name not in FEATURES or not number.isdecimal():
        allowed = "tabular, " + ", ".join(f"{known}:N" for known in FEATURES)
        raise ValueError(f"features must be one of {allowed}, got {text!r}")
    built = FEATURES[name](num_states, int(number))
    return linear.with_bias(built) if bias else built


def write_evaluation(evaluation: Evaluation, folder: Path) -> list[Path]:
    """Write the numbers as JSON and the distributions of the most visited states as a picture."""
    return [write_process_record(evaluation, folder), plots.save(evaluation.plot(), folder / PICTURE, MADE_BY)]
