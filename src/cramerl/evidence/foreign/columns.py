"""Which column of a table of runs means what: by its name, or as the user says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cramerl._printable import printable

ROLES: dict[str, tuple[str, ...]] = {
    "agent": ("agent", "algo", "algorithm", "exp_name", "method"),
    "env": ("env", "game", "env_id", "env_name", "environment", "task"),
    "seed": ("seed", "run", "run_id"),
    "step": ("step", "global_step", "frames", "frame", "timestep", "timesteps", "total_timesteps", "env_steps"),
    "return": ("return", "score", "episodic_return", "episode_return", "reward", "episode_reward", "ep_rew_mean"),
    "episodes": ("episodes", "num_episodes"),
}
"""What columns mean, and the names that are understood; the first is the plain one."""
FRAMES = ("frames", "frame")
_REQUIRED = ("env", "step", "return")
_MOST_LISTED = 20


def find_columns(names: Sequence[str], columns: Mapping[str, str], file: Path) -> dict[str, int]:
    """The place of the column of each role that a table has.

    Args:
        names: the columns of the table, in order.
        columns: the names of some of them, by role.
        file: what errors are about.
    """
    require_roles(columns)
    plain = [plain_name(name) for name in names]
    found = {}
    for role, known in ROLES.items():
        if role in columns:
            places = [i for i, name in enumerate(names) if name.strip() == columns[role].strip()]
            if not places:
                raise ValueError(f"{file} has no column {columns[role]!r} for the {role}; {_listed(names)}")
        else:
            taken = [given for other, given in columns.items() if other != role]
            free = {i: name for i, name in enumerate(plain) if names[i] not in taken}
            places = [i for i, name in free.items() if name == known[0]]
            places = places or [i for i, name in free.items() if name in known]
        if len(places) > 1:
            which = " and ".join(repr(names[i]) for i in places)
            raise ValueError(
                f"{file} has several columns that may be the {role}: {which}; say which, as in columns "
                f"{role}={names[places[-1]]}, or rename one; {_listed(names)}"
            )
        if not places and role in _REQUIRED:
            raise ValueError(
                f"{file} has no column for the {role} ({', '.join(known[:4])} or the like); say which, as in columns "
                f"{role}=NAME; {_listed(names)}"
            )
        if places:
            found[role] = places[0]
    return found


def require_roles(columns: Mapping[str, str]) -> None:
    """Raise ValueError if columns are given for what no table has."""
    if unknown := [role for role in columns if role not in ROLES]:
        raise ValueError(f"columns must be named for {', '.join(ROLES)}; got {unknown[0]!r}")


def plain_name(name: str) -> str:
    """A name as it is compared: ``charts/Episodic Return`` is ``episodic_return``."""
    return name.strip().lower().rpartition("/")[2].replace(" ", "_").replace("-", "_")


def _listed(names: Sequence[str]) -> str:
    shown = [printable(name)[:60] for name in names[:_MOST_LISTED]]
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"it has: {', '.join(shown)}{more}"
