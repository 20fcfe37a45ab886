"""Features of observed states: a basis by name, a function of the user's, or a transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from cramerl._arrays import Floats
from cramerl._checks import require_finite
from cramerl.linear.logs.cloud_features import Bumps, Cells, Waves
from cramerl.linear.logs.code_features import Combinations, Levels
from cramerl.linear.logs.column_features import Bins, Columns, Cosines, Hats, Scale
from cramerl.linear.logs.feature_tables import Table, side_by_side, worth_sparse
from cramerl.linear.logs.observations import Observations, ObservationSchema
from cramerl.linear.logs.own_features import Function, Transformer, is_transformer, state_table

__all__ = ["StateFeatures", "Table", "candidates", "state_features", "state_table"]


class _Named(NamedTuple):
    """A basis that has a name.

    Attributes:
        size: default; None if the basis has no size.
        least: smallest size.
        tried: sizes that are candidates, the largest first.
    """

    size: int | None
    least: int
    tried: tuple[int, ...]


_BASES = {
    "columns": _Named(None, 0, ()),
    "bins": _Named(10, 2, (20, 10, 5, 3)),
    "splines": _Named(8, 2, (16, 8, 5, 3)),
    "cells": _Named(100, 1, (300, 150, 100, 50, 25, 10)),
    "rbf": _Named(100, 1, (200, 100, 50, 25, 10, 5)),
    "fourier": _Named(3, 1, (6, 4, 3, 2)),
    "random": _Named(200, 1, (280, 200, 100, 50, 25, 10)),
}
_OF_ALL_COLUMNS = {"cells": Cells, "rbf": Bumps, "random": Waves}
# Candidates have no more features than this, and this many rows for each.
_MOST_FEATURES, _ROWS_EACH = 300, 20
# States with which the features of candidates are counted, and with which functions of states and actions are tried.
_MOST_COUNTED, _MOST_SAMPLED = 20_000, 1_000
# Random features for each column up to which they are linearly independent for practical purposes, if columns are few.
_RANDOM_EACH = 25


class StateFeatures(Protocol):
    """Features of states, fitted to the observations of a log.

    Attributes:
        name: in words, or as it is given to `state_features`.
        num_features: D.
        sample: some of the observations they were fitted to.
    """

    name: str
    num_features: int
    sample: Observations

    def __call__(self, observations: Observations) -> Table:
        """Return (m, D); unless the features are the user's own, column 0 is one."""
        ...

    def numbers(self, observations: Observations) -> Floats:
        """The numeric columns that vary, standardised and clipped to the range seen."""
        ...


class FittedBasis:
    """A constant, features of the numeric columns and indicators of the levels of categorical ones."""

    def __init__(self, name: str, sample: Observations, scale: Scale, parts: Sequence[Any]):
        self.name, self.sample, self.scale, self.parts = name, sample, scale, tuple(parts)
        self.num_features = 1 + sum(part.num_features for part in self.parts)
        self._as_sparse = worth_sparse(self.num_features, 1 + sum(part.nonzero_in_row for part in self.parts))

    @classmethod
    def fit(cls, name: str, observations: Observations, schema: ObservationSchema, seed: int) -> Self:
        """The basis of this name."""
        kind, _, size = name.partition(":")
        scale, sizes = Scale.fit(observations.numbers), tuple(len(levels) for levels in schema.levels)
        parts = [_of_numbers(kind, int(size or 0), observations, scale, seed), Levels(sizes)]
        if kind == "bins" and (combinations := Combinations.fit(observations, sizes)) is not None:
            parts.append(combinations)
        return cls(name, _spaced(observations, _MOST_SAMPLED), scale, parts)

    def __call__(self, observations: Observations) -> Table:
        """Return (m, D)."""
        _require_columns(observations, self.sample)
        tables = [np.ones((len(observations), 1)), *(part(observations) for part in self.parts)]
        return side_by_side(tables, len(observations), self._as_sparse)

    def numbers(self, observations: Observations) -> Floats:
        """The numeric columns that vary, standardised."""
        return self.scale.standard(observations)


class OwnFeatures:
    """A function of the user's, or a fitted transformer."""

    def __init__(self, name: str, function: Any, observations: Observations):
        self.name, self.sample = name, _spaced(observations, _MOST_SAMPLED)
        self.scale = Scale.fit(observations.numbers)
        self._function = Function("features", function, state_table(observations))
        self.num_features = self._function.num_features

    def __call__(self, observations: Observations) -> Table:
        """Return (m, D)."""
        _require_columns(observations, self.sample)
        return self._function(state_table(observations))

    def numbers(self, observations: Observations) -> Floats:
        """The numeric columns that vary, standardised."""
        return self.scale.standard(observations)


def state_features(
    features: Any, observations: Observations, schema: ObservationSchema, seed: int = 0
) -> StateFeatures:
    """Features of states, fitted to observations.

    Args:
        features: None: the first of the `candidates`. A name, with a size where there is one: "columns" (standardised),
            "bins:10" (indicators of intervals of each column), "splines:8" (hat functions at knots of each column),
            "cells:100" (indicators of cells of similar states), "rbf:100" (Gaussian bumps around states), "fourier:3"
            (cosines of each column up to an order, and products for two columns), "random:200" (random Fourier
            features). Each has a constant and an indicator for every level of a categorical column. A function of
            `state_table` that returns (m, D), dense or sparse. A transformer with ``fit`` and ``transform``, as
            scikit-learn has them: a copy is fitted.
        observations: m states.
        schema: what their columns are.
        seed: of the random choices of "cells", "rbf" and "random".
    """
    _require_schema(observations, schema)
    if isinstance(features, FittedBasis | OwnFeatures):
        return features
    if features is None:
        features = candidates(observations, schema, len(observations))[0]
    if isinstance(features, str):
        return FittedBasis.fit(_full_name(features), observations, schema, seed)
    if is_transformer(features):
        fitted = Transformer(features, state_table(observations))
        return OwnFeatures(type(features).__name__, fitted, observations)
    if callable(features) and not isinstance(features, type):
        return OwnFeatures("your function", features, observations)
    raise ValueError(f"features must be {_allowed()}, got {_shown(features)}")


def candidates(observations: Observations, schema: ObservationSchema, num_rows: int) -> list[str]:
    """Names of features to choose from, the one that is best in general first.

    Args:
        observations: states of the log, or some of them.
        schema: what their columns are.
        num_rows: transitions of the log. Candidates have at most a twentieth as many features, and at most 300, beside
            the constant; in a log that is too small for any, or has too many levels, there is one small candidate.
    """
    _require_schema(observations, schema)
    some = _spaced(observations, _MOST_COUNTED)
    num_columns = len(Scale.fit(some.numbers).columns)
    if not num_columns:
        return ["bins:10"]
    most = min(_MOST_FEATURES, num_rows // _ROWS_EACH) - sum(len(levels) for levels in schema.levels)
    found = [*_fitting("splines", some, most)[:2], *_fitting("bins", some, most)[:1]]
    if num_columns > 1:  # of a single column the others span all
        found += [*_fitting("rbf", some, most)[:2], *_fitting("cells", some, most)[:1]]
    found += _fitting("fourier", some, most)[:1]
    if num_columns > 2:
        found += _fitting("random", some, min(most, _RANDOM_EACH * num_columns))[:1]
    return found or ["rbf:3"]


def _fitting(kind: str, observations: Observations, most: int) -> list[str]:
    """Names of bases with at most so many features beside the constant and the levels, the largest first."""
    return [f"{kind}:{size}" for size in _BASES[kind].tried if _num_features(kind, size, observations) <= most]


def _of_numbers(kind: str, size: int, observations: Observations, scale: Scale, seed: int) -> Any:
    if kind == "columns":
        return Columns.fit(observations, scale)
    if kind in _OF_ALL_COLUMNS:
        return _OF_ALL_COLUMNS[kind].fit(observations, scale, size, seed)
    return {"bins": Bins, "splines": Hats, "fourier": Cosines}[kind].fit(observations, scale, size)


def _num_features(kind: str, size: int, observations: Observations) -> int:
    """Of the numbers."""
    if kind in _OF_ALL_COLUMNS:
        return size
    return _of_numbers(kind, size, observations, Scale.fit(observations.numbers), 0).num_features


def _full_name(name: str) -> str:
    """With the size; ValueError unless there is such a basis."""
    kind, colon, size = name.strip().partition(":")
    basis = _BASES.get(kind)
    if basis is None or (colon and (basis.size is None or not size.strip().isdecimal() or int(size) < basis.least)):
        least = f", where {kind!r} needs a size >= {basis.least}" if basis is not None and basis.size else ""
        raise ValueError(f"features must be {_allowed()}{least}, got {name!r}")
    if basis.size is None:
        return kind
    return f"{kind}:{int(size) if colon else basis.size}"


def _allowed() -> str:
    names = ", ".join(repr(kind if basis.size is None else f"{kind}:{basis.size}") for kind, basis in _BASES.items())
    return f"one of {names} (or another size), a function of the states, or a transformer with fit and transform"


def _shown(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _spaced(observations: Observations, most: int) -> Observations:
    """At most so many of the states, evenly spaced."""
    if len(observations) <= most:
        return observations
    return observations.take(np.linspace(0, len(observations) - 1, most).astype(np.intp))


def _require_schema(observations: Observations, schema: ObservationSchema) -> None:
    found = observations.numbers.shape[1], observations.codes.shape[1]
    wanted = len(schema.number_names), len(schema.category_names)
    if found != wanted or not len(observations):
        raise ValueError(
            f"observations must hold a state at least, of {wanted[0]} numbers and {wanted[1]} codes, "
            f"got {len(observations)} of {found[0]} and {found[1]}"
        )
    require_finite(observations=observations.numbers)


def _require_columns(observations: Observations, seen: Observations) -> None:
    for name, given, fitted in zip(("numbers", "codes"), observations[:2], seen[:2], strict=True):
        if given.shape[1] != fitted.shape[1]:
            raise ValueError(f"observations must have {fitted.shape[1]} {name}, got {given.shape[1]}")
