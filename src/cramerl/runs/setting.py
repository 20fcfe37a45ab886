"""What is declared about a setting at its field of `TrainConfig`, and the agents that settings are of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

AGENTS = ("dqn", "c51", "s51", "u51", "l51", "qr", "hl_gauss")


class Setting(NamedTuple):
    """What a setting means, declared at its field of `TrainConfig`.

    Attributes:
        group: the heading of the help text it belongs to.
        help: one line.
        bounds: ``low`` and ``high`` are allowed, ``above`` is not.
        role: what it changes. *subject*: what is trained. *seed*: which repetition of it. *learning*: what is learned.
            *start*: only where learning starts. *length*: how long it takes. *pace*: when log lines and checkpoints are
            written. *record*: only what is stored or shown.
        agents: the agents that use it.
        families: the environment families that use it; empty for all.
        lane: whether runs of one group may differ in it.
        scoring: *protocol*: scores are comparable only if it is equal. *tuned*: a report shows the best value.
            *variant*: a report names an agent by it unless it has its default.
        common: whether people often change it: `cramerl train --help` shows those.
        aliases: other names of exactly the same thing, which flags and settings in Python may have.
        near: names of similar settings elsewhere; the error about one of them names this setting.
    """

    group: str
    help: str
    bounds: Mapping[str, float]
    role: Literal["subject", "seed", "learning", "start", "length", "pace", "record"] = "learning"
    agents: tuple[str, ...] = AGENTS
    families: tuple[str, ...] = ()
    lane: bool = False
    scoring: Literal["", "protocol", "tuned", "variant"] = ""
    common: bool = False
    aliases: tuple[str, ...] = ()
    near: tuple[str, ...] = ()


def agent_name(text: Any) -> Any:
    """The name of an agent that is written another way; anything else is returned as it is.

    Example:
        >>> agent_name("S51"), agent_name("QR-DQN"), agent_name("HL-Gauss")
        ('s51', 'qr', 'hl_gauss')
    """
    known = {re.sub("_", "", agent): agent for agent in AGENTS} | {"qrdqn": "qr"}
    return known.get(re.sub("[-_ ]", "", text).lower(), text) if isinstance(text, str) else text
