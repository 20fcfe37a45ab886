"""Heads: what differs between the agents. Everything else is shared.

A head defines what the last layer's outputs for one action mean (a distribution of the return), their value (its mean),
what they should become after a transition (the target), and how far they are from it (the loss). All functions act on
the last axis and broadcast over the rest.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from cramerl._checks import require_choice
from cramerl.deep.heads.means import DQN, QR
from cramerl.deep.heads.protocols import AtomsHead, Coarser, Head, LinearHead
from cramerl.deep.heads.signed import L51, S51, U51
from cramerl.deep.heads.softmax import C51, HLGauss
from cramerl.supports import Support

__all__ = [
    "C51",
    "DQN",
    "HEADS",
    "L51",
    "QR",
    "S51",
    "U51",
    "AtomsHead",
    "Coarser",
    "HLGauss",
    "Head",
    "LinearHead",
    "make_head",
]


HEADS: dict[str, type] = {
    "dqn": DQN,
    "c51": C51,
    "s51": S51,
    "u51": U51,
    "l51": L51,
    "qr": QR,
    "hl_gauss": HLGauss,
}


def make_head(name: str, *, num_atoms: int = 51, v_min: float = -10.0, v_max: float = 10.0, **options: Any) -> Head:
    """Build a head by name; options that it does not have are ignored.

    Args:
        name: dqn, c51, s51, u51, l51, qr or hl_gauss.
        num_atoms: atoms of the support, or quantiles.
        v_min: smallest return of the support.
        v_max: largest return of the support.
        options: fields of the head's class, such as ``mass_penalty`` or ``dqn_loss``.
    """
    require_choice("agent", name, tuple(HEADS))
    known = {field.name for field in fields(HEADS[name])}
    given = {"num_atoms": num_atoms, **options}
    if name not in ("dqn", "qr"):
        given["support"] = Support.uniform(v_min, v_max, num_atoms)
    return HEADS[name](**{key: value for key, value in given.items() if key in known})
