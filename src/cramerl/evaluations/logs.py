"""What `cramerl evaluate --data` does: from words on a command line to evaluations of policies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cramerl.evaluations.processes import load_policy
from cramerl.linear import Log, PolicyEvaluation, PolicyEvaluations, evaluate_policy
from cramerl.linear.logs.opening import open_table
from cramerl.linear.logs.tables import Tables

LOGGED = "log"
"""The name of the policy that made the log."""
_NAMED = re.compile(r"([^=,*?/\\]+)=(.+)")
_POLICY_FILES = (".npy", ".csv")


def data_source(text: str) -> str | list[str]:
    """One or several paths, with commas between them."""
    if "," not in text or Path(text).exists() or "://" in text:
        return text
    return [part.strip() for part in text.split(",") if part.strip()]


def read_log(text: str, columns: Mapping[str, Any]) -> Log:
    """The log in the files of a text, as `data_source` divides it.

    Args:
        text: paths, or the name of a Minari dataset or of an example.
        columns: arguments of `Log.read`; those that are None are left out. If none says where returns end, a column
            that is called "terminated" does.
    """
    source, given = data_source(text), {name: value for name, value in columns.items() if value is not None}
    tables: Tables = open_table(source)
    named = getattr(tables, "NAMES", {})
    if "terminated" not in given and "terminated" not in named and "terminated" in tables.table.names:
        given["terminated"] = "terminated"
    if not named and "state" not in given:
        raise ValueError(f"state must name the columns of the state, got none; the columns are {tables.table}")
    if not named and "episode" not in given and "next_state" not in given:
        raise ValueError(
            "episode must name the column that tells episodes apart, or next_state the columns of the next state, got "
            f"neither; the columns are {tables.table}"
        )
    return Log.read(source, **given)


def named_policies(texts: Sequence[str] | None) -> dict[str, Any]:
    """Policies by name, as `evaluate_policy` takes them, from ``NAME=POLICY`` or a single ``POLICY``.

    A policy is a file of probabilities or actions (.npy, .csv), the word "log" for the policy that made the log, or
    names of the log's columns that hold the probabilities of its actions.
    """
    if not texts:
        return {"": None}
    found: dict[str, Any] = {}
    for text in texts:
        match = _NAMED.fullmatch(text)
        name, what = (match[1], match[2]) if match else ("" if len(texts) == 1 else text, text)
        if name in found:
            raise ValueError(f"policy must have different names, got {name!r} twice")
        found[name] = None if what == LOGGED else load_policy(what) if what.endswith(_POLICY_FILES) else what
    return found


def evaluate_log(
    log: Log, policies: Mapping[str, Any], on_progress: Callable[[str], None], **settings: Any
) -> PolicyEvaluations:
    """Evaluations of the policies, with their verdicts; settings are arguments of `evaluate_policy`."""
    found: PolicyEvaluations = evaluate_policy(log, dict(policies), on_progress=on_progress, **settings)
    for name, each in found.items():
        on_progress(f"checking {name or 'the answer'} ...")
        _ = each.trust  # which is computed on first use
    on_progress("")
    return found


def is_refused(found: Mapping[str, PolicyEvaluation]) -> bool:
    """Whether an answer should not be used."""
    return any(each.trust.verdict == "do not use" for each in found.values())
