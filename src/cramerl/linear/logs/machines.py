"""The example log of machines, as a process that can be simulated and solved exactly.

Machines work on three sites. They wear, faster under a heavy load and in the quarry, and a worn machine earns less and
breaks more easily. Each week a mechanic lets a machine run or services it. A machine's story ends when it is scrapped
or sold; that of some is cut, because the log was taken before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl._arrays import Floats
from cramerl.linear.processes import MarkovRewardProcess

SITES = ("city", "harbour", "quarry")
LOADS = np.array([0.6, 1.0, 1.4])
WEAR = np.arange(13) / 2.0
"""Millimetres."""
DISCOUNT = 0.98
FILE = Path(__file__).parent / "data" / "machines.npz"
"""The log that comes with the package: `write_log` made it."""
_ROUGHNESS = np.array([0.25, 0.35, 0.5])  # how likely a week wears a machine, by site
_LOAD_MOVES = np.array([[0.92, 0.08, 0.0], [0.04, 0.92, 0.04], [0.0, 0.08, 0.92]])
_PAY = np.array([0.7, 1.0, 1.5])  # by site
_SERVICE_COST, _SCRAPPING, _NOISE, _SALE = 2.0, 15.0, 0.4, 0.012
_STEPS_SERVICED = 6


class Machines(NamedTuple):
    """What happens in a state (wear, load, site) under each action, run and service; arrays (S, 2)."""

    earned: Floats
    """Mean of the week's profit, in thousands, where the machine goes on."""
    scrapped: Floats
    sold: Floats
    moves: Floats
    """(S, 2, S) where to, if it goes on."""


def states() -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """(S,) numbers of the wear, the load and the site of every state."""
    wear, load, site = (part.ravel() for part in np.indices((len(WEAR), len(LOADS), len(SITES))))
    return wear, load, site


def machines() -> Machines:
    """The process."""
    wear, load, site = states()
    worn = WEAR[wear] / WEAR[-1]
    earned = np.stack([1.5 * _PAY[site] * LOADS[load] * (1 - 0.4 * worn), np.full(len(wear), -_SERVICE_COST)], axis=1)
    breaks = 0.003 + 0.20 * worn**2 * LOADS[load]
    scrapped = np.stack([breaks, 0.2 * breaks], axis=1)
    sold = np.full((len(wear), 2), _SALE)
    moves = np.zeros((len(wear), 2, len(wear)))
    for state in range(len(wear)):
        wears = min(1.0, _ROUGHNESS[site[state]] * LOADS[load[state]] * 1.6)
        for following, share in enumerate(_LOAD_MOVES[load[state]]):
            for action, more, chance in ((0, 0, 1 - wears), (0, 1, wears), (1, -_STEPS_SERVICED, 1.0)):
                after = min(max(wear[state] + more, 0), len(WEAR) - 1)
                moves[state, action, _number(after, following, site[state])] += share * chance
    return Machines(earned, scrapped, sold, moves)


def logged_policy() -> Floats:
    """(S, 2) probabilities of running and of servicing, by the mechanic who made the log."""
    return _servicing(4.5, 1.5)


def careful_policy() -> Floats:
    """(S, 2) those of one who services sooner."""
    return _servicing(3.0, 2.0)


def start_distribution() -> Floats:
    """(S,) new machines, of every load and site."""
    wear, _, _ = states()
    return (wear == 0) / (wear == 0).sum()


def reward_process(policy: Floats) -> MarkovRewardProcess:
    """What a policy makes of the machines, with an absorbing state at the end; rewards are their means."""
    about = machines()
    goes = (1 - about.scrapped) * (1 - about.sold)
    gained = goes * about.earned + about.scrapped * -_SCRAPPING
    gained += (1 - about.scrapped) * about.sold * (about.earned + _price()[:, None])
    size = len(policy)
    transitions = np.zeros((size + 1, size + 1))
    transitions[:size, :size] = np.einsum("sa,sat->st", policy * goes, about.moves)
    transitions[:, size] = 1 - transitions.sum(axis=1)
    rewards = np.append((policy * gained).sum(axis=1), 0.0)
    return MarkovRewardProcess(transitions, rewards, DISCOUNT)


def simulate(policy: Floats, num_machines: int, weeks: NDArray[np.intp], rng: np.random.Generator) -> dict[str, Any]:
    """Columns of a log of so many machines, each cut after so many weeks unless it ends before."""
    about, size = machines(), len(policy)
    _, load, site = states()
    state = rng.choice(size, num_machines, p=start_distribution())
    machine, rows, week = np.arange(num_machines), [], 0
    while len(machine):
        action = (rng.random(len(machine)) < policy[state, 1]).astype(np.intp)
        scrapped = rng.random(len(machine)) < about.scrapped[state, action]
        sold = ~scrapped & (rng.random(len(machine)) < about.sold[state, action])
        profit = about.earned[state, action] + _NOISE * rng.normal(size=len(machine)) + sold * _price()[state]
        reward = np.where(scrapped, -_SCRAPPING, profit)
        rows.append((machine, np.full(len(machine), week), state, action, reward.round(2), scrapped, sold))
        below = np.cumsum(about.moves[state, action], axis=1)
        following = (rng.random((len(machine), 1)) > below).sum(axis=1).clip(0, size - 1)
        week += 1
        kept = ~scrapped & ~sold & (weeks[machine] > week)
        machine, state = machine[kept], following[kept]
    names = ("machine", "week", "state", "action", "reward", "scrapped", "sold")
    table = {name: np.concatenate(parts) for name, parts in zip(names, zip(*rows, strict=True), strict=True)}
    order = np.lexsort([table["week"], table["machine"]])
    table = {name: column[order] for name, column in table.items()}
    state = table.pop("state")
    wear = states()[0]
    return table | {"state": state, "wear": WEAR[wear[state]], "load": LOADS[load[state]], "site": site[state]}


def make_log(num_machines: int = 400, seed: int = 0) -> dict[str, NDArray[Any]]:
    """The columns of the example: machines of the logged policy, seen for half a year to two years."""
    rng = np.random.default_rng(seed)
    policy = logged_policy()
    found = simulate(policy, num_machines, rng.integers(26, 105, num_machines), rng)
    state, action = found.pop("state"), found["action"]
    careful = careful_policy()[state].round(3)
    return {
        "machine": (found["machine"] + 1).astype(np.int16),
        "week": found["week"].astype(np.int16),
        "wear": found["wear"],
        "load": found["load"],
        "site": np.array(SITES)[found["site"]],
        "action": np.array(["run", "service"])[action],
        "reward": found["reward"],
        "scrapped": found["scrapped"],
        "sold": found["sold"],
        "propensity": policy[state, action].round(4),
        "careful_run": careful[:, 0],
        "careful_service": 1 - careful[:, 0],
    }


def write_log(path: Path = FILE) -> Path:
    """Write the log that comes with the package."""
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **make_log())
    return path


def _servicing(middle: float, slope: float) -> Floats:
    """Probabilities of servicing that rise with the wear, from 3 to 97 percent."""
    service = 0.03 + 0.94 / (1 + np.exp(-slope * (WEAR[states()[0]] - middle)))
    return np.stack([1 - service, service], axis=1)


def _price() -> Floats:
    """(S,) what a machine is sold for."""
    return 8.0 - WEAR[states()[0]]


def _number(wear: int, load: int, site: int) -> int:
    return (wear * len(LOADS) + load) * len(SITES) + site
