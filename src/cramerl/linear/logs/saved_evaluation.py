"""Evaluations of policies on disk: what it takes to predict the returns of new states."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cramerl._arrays import Floats
from cramerl._files import write_whole
from cramerl._folders import parse_json, read_inside
from cramerl.linear.evaluation_file import MADE_BY
from cramerl.linear.logs.action_features import ProductFeatures
from cramerl.linear.logs.basis import FittedBasis
from cramerl.linear.logs.code_features import Levels
from cramerl.linear.logs.layout import Names
from cramerl.linear.logs.observations import Observations, ObservationSchema
from cramerl.linear.logs.opening import encode_table, encoded_chunks, open_table
from cramerl.linear.logs.packing import Arrays, pack, read_arrays, unpack
from cramerl.linear.logs.policies import Policy, pack_policy, unpack_policy
from cramerl.linear.logs.policy_evaluation import PolicyEvaluation
from cramerl.linear.logs.records import Decoder
from cramerl.linear.logs.tables import Columns
from cramerl.linear.lstd import DistributionalLSTD
from cramerl.supports import Support

MODEL_FILE = "model.npz"
MODEL_BYTES = 2 << 30  # largest file that is read
_VERSION = 1


class Seen(NamedTuple):
    """The range of each numeric column of the state in a log."""

    low: Floats
    high: Floats


def save_evaluation(found: PolicyEvaluation | Mapping[str, PolicyEvaluation], folder: str | Path) -> Path:
    """Write what predictions for new states need into a folder: arrays and plain values, no code.

    Args:
        found: what `evaluate_policy` returned. Features and policies that are functions of yours, or transformers,
            cannot be written.
        folder: the file in it is ``model.npz``.
    """
    named = found if isinstance(found, Mapping) else {"": found}
    first = next(iter(named.values()))
    features = first.selection.features
    if not isinstance(features, FittedBasis):
        raise ValueError(f"features must be named ones to be saved, such as 'splines:8', got {features.name}")
    arrays: Arrays = {}
    seen, schema = _seen(first), first.log.schema
    about = {
        "made_by": MADE_BY,
        "version": _VERSION,
        "state": list(first.log.layout.state),
        "numbers": list(schema.number_names),
        "categories": list(schema.category_names),
        "levels": [list(map(_plain, levels)) for levels in schema.levels],
        "actions": None if first.log.action_levels is None else list(map(_plain, first.log.action_levels)),
        "seen": [pack(seen.low, arrays), pack(seen.high, arrays)],
        "basis": features.name,
        "scale": pack(features.scale, arrays),
        "parts": [pack(part, arrays) for part in features.parts],
        "policies": [_packed_policy(name, each, arrays) for name, each in named.items()],
    }
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    path = Path(folder) / MODEL_FILE
    return write_whole(path, lambda temporary: np.savez(temporary, allow_pickle=False, about=text, **arrays))


class SavedEvaluation:
    """An evaluation that was read from a folder: distributions of the returns of new states.

    Attributes:
        support: the K atoms.
        discount: the discount.
        verdict: "use", "care" or "do not use", as the evaluation found.
        reasons: for the verdict.
        policy: its name, empty where there was but one.
        schema: the columns of the state.
    """

    def __init__(
        self,
        model: DistributionalLSTD,
        features: FittedBasis,
        actions: ProductFeatures | None,
        target: Policy | None,
        decoder: Decoder,
        schema: ObservationSchema,
        seen: Seen,
        about: Mapping[str, Any],
    ):
        self._model, self._features, self._actions, self._target = model, features, actions, target
        self._decoder, self._seen, self.schema = decoder, seen, schema
        self.support, self.discount = model.support_, float(model.discount)
        self.policy, self.verdict, self.reasons = about["name"], about["verdict"], tuple(about["reasons"])

    def encode(self, states: Any) -> Observations:
        """States in a table with the columns of the log's state, or (m, C) numbers in their order."""
        return encode_table(self._decoder, states)

    def chunks(self, source: Any, keep: Names | None = None) -> Iterator[tuple[Observations, Columns]]:
        """The states in a source as `Log.read` takes them, some rows at a time, and these rows of other columns."""
        tables = open_table(source)
        if lost := [name for name in self._decoder.layout.policy if name not in tables.table.names]:
            raise ValueError(
                f"table must have the columns of the policy, {lost[0]!r} is missing; it has {tables.table}"
            )
        return encoded_chunks(self._decoder, tables, () if keep is None else tables.table.find("keep", keep))

    def predict(self, states: Any) -> Floats:
        """(m, K) probabilities of the return on ``support`` from each state, as `PolicyEvaluation.predict` gives them.

        Args:
            states: a table with the log's state columns, (m, C) numbers in their order, or what `encode` returned.
        """
        observations = states if isinstance(states, Observations) else self.encode(states)
        if self._actions is None or self._target is None:
            return self._model.predict_proba(self._features(observations))
        return self._model.predict_proba(self._actions.expected(observations, self._target(observations)))

    def unlike(self, states: Any) -> list[str]:
        """Of each state: in what it is unlike the log's; empty where it is not."""
        numbers, codes, _ = states if isinstance(states, Observations) else self.encode(states)
        found: list[list[str]] = [[] for _ in numbers]
        outside = (numbers < self._seen.low) | (numbers > self._seen.high)
        for row, j in np.argwhere(outside).tolist():
            low, high = self._seen.low[j], self._seen.high[j]
            found[row].append(f"{self.schema.number_names[j]} is {numbers[row, j]:g}, the log has {low:g} to {high:g}")
        for row, j in np.argwhere(codes < 0).tolist():
            found[row].append(f"{self.schema.category_names[j]} has a value that the log never had")
        return ["; ".join(parts) for parts in found]

    def __repr__(self) -> str:
        whose = f"policy {self.policy!r}, " if self.policy else ""
        return f"SavedEvaluation({whose}{self._features.name}, discount {self.discount:g}, verdict {self.verdict!r})"


def load_evaluation(folder: str | Path, policy: str | None = None) -> SavedEvaluation:
    """The evaluation that `save_evaluation` or ``cramerl evaluate --data`` wrote into a folder.

    Nothing in the folder is run, so it may come from others.

    Args:
        folder: the folder.
        policy: the name of the policy, where several were evaluated.
    """
    try:
        arrays = read_arrays(read_inside(folder, MODEL_FILE, most=MODEL_BYTES))
        about = parse_json(arrays.pop("about").tobytes())
        known = [_text(each["name"]) for each in about["policies"]]
    except FileNotFoundError:
        raise ValueError(
            f"folder must be one that cramerl evaluate --data wrote, {folder} holds no {MODEL_FILE}"
        ) from None
    except _TAMPERED as error:
        raise _wrong(folder, error) from error
    if policy is None and len(known) > 1:
        raise ValueError(f"policy must be one of {', '.join(known)}, the policies that were evaluated, got None")
    if policy is not None and policy not in known:
        raise ValueError(f"policy must be one of {', '.join(known) or 'none'}, the policies evaluated, got {policy!r}")
    try:
        return _restored(about, about["policies"][0 if policy is None else known.index(policy)], arrays)
    except _TAMPERED as error:
        raise _wrong(folder, error) from error


# What reading a file that somebody changed can raise; RuntimeError where values are nested too deeply.
_TAMPERED = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    EOFError,
    zipfile.BadZipFile,
)


def _wrong(folder: str | Path, error: Exception) -> ValueError:
    return ValueError(
        f"{Path(folder) / MODEL_FILE} is not what this version of cramerl evaluate writes: {error}; evaluate again"
    )


def _restored(about: Any, chosen: Any, arrays: Arrays) -> SavedEvaluation:
    if about["version"] != _VERSION:
        raise ValueError(f"it is of version {about['version']}, this is {_VERSION}")
    levels = tuple(tuple(map(_level, column)) for column in about["levels"])
    schema = ObservationSchema(tuple(about["numbers"]), tuple(about["categories"]), levels)
    state = tuple(about["state"])
    if sorted(state) != sorted([*schema.number_names, *schema.category_names]) or len(set(state)) != len(state):
        raise ValueError("its columns do not fit together")
    features = _features(about, schema, arrays)
    actions, target, policy_columns = None, None, ()
    if chosen["policy"] is not None:
        labels = tuple(map(_level, about["actions"]))
        actions = ProductFeatures(features, len(labels))
        target, policy_columns = unpack_policy(chosen["policy"], arrays, labels, schema)
    model = _model(chosen, arrays, features.num_features if actions is None else actions.num_features)
    decoder = Decoder.of_schema(schema, state, policy_columns)
    seen = Seen(*(unpack(part, arrays) for part in about["seen"]))
    if any(part.shape != (len(schema.number_names),) or part.dtype.kind != "f" for part in seen):
        raise ValueError("the ranges of its columns do not fit together")
    words = [chosen["name"], chosen["verdict"], *chosen["reasons"], *state]
    if not all(isinstance(word, str) for word in words) or chosen["verdict"] not in ("use", "care", "do not use"):
        raise ValueError("its verdict is none")
    return SavedEvaluation(model, features, actions, target, decoder, schema, seen, chosen)


def _features(about: Any, schema: ObservationSchema, arrays: Arrays) -> FittedBasis:
    scale, parts = unpack(about["scale"], arrays), [unpack(part, arrays) for part in about["parts"]]
    sizes, count = tuple(map(len, schema.levels)), len(schema.number_names)
    fitting = len(parts) in (2, 3) and isinstance(parts[1], Levels)
    if not fitting or any(part.sizes != sizes for part in parts[1:]):
        raise ValueError("its features do not belong to its columns")
    for used in (scale, parts[0].scale):
        if len(used.columns) and not 0 <= used.columns.min() <= used.columns.max() < count:
            raise ValueError("its features do not belong to its columns")
    sample = Observations(np.empty((0, count)), np.empty((0, len(sizes)), np.int32))
    return FittedBasis(str(about["basis"]), sample, scale, parts)


def _model(chosen: Any, arrays: Arrays, num_features: int) -> DistributionalLSTD:
    support = Support(unpack(chosen["atoms"], arrays))
    weights = unpack(chosen["weights"], arrays)
    if weights.shape != (num_features, support.num_atoms) or weights.dtype != np.float64:
        shape = (num_features, support.num_atoms)
        raise ValueError(f"its weights must have shape {shape}, got {weights.shape} of {weights.dtype}")
    model = DistributionalLSTD(support, float(chosen["discount"]))
    model.support_, model.weights_, model.n_features_in_ = support, weights, len(weights)
    model._offset = 0.0  # evaluate_policy keeps the mass at one before each backup
    return model


def _packed_policy(name: str, found: PolicyEvaluation, arrays: Arrays) -> dict[str, Any]:
    trust = found.trust
    return {
        "name": name,
        "policy": None if found.policy is None else pack_policy(found.policy, arrays),
        "discount": found.discount,
        "verdict": trust.verdict,
        "reasons": list(trust.reasons),
        "atoms": pack(found.model.support_.atoms, arrays),
        "weights": pack(found.model.weights_, arrays),
    }


def _seen(found: PolicyEvaluation) -> Seen:
    count = len(found.log.schema.number_names)
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    for block in found.log.blocks():
        if len(block.observations):
            low = np.minimum(low, block.observations.numbers.min(axis=0))
            high = np.maximum(high, block.observations.numbers.max(axis=0))
    return Seen(low, high)


def _text(content: Any) -> str:
    if not isinstance(content, str):
        raise ValueError(f"the name of a policy must be a text, it is {content!r}")
    return content


def _plain(level: Any) -> Any:
    """A level as JSON has it."""
    return {"bytes": level.hex()} if isinstance(level, bytes) else level


def _level(content: Any) -> Any:
    if isinstance(content, dict):
        return bytes.fromhex(content["bytes"])
    if not isinstance(content, str | int):
        raise ValueError(f"a level must be a text or an integer, it is {content!r}")
    return content
