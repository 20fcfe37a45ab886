"""Optional libraries: import one, or say which extra of cramerl installs it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_LIBRARIES = {
    "data": ("minari", "pyarrow"),
    "deep": ("ale_py", "gymnax", "jax", "optax", "rich", "safetensors", "tensorboardX"),
    "gym": ("gymnasium",),
    "hub": ("huggingface_hub",),
    "plot": ("jinja2", "markupsafe", "matplotlib"),
    "ray": ("fsspec", "ray"),
    "watch": ("av", "PIL"),
}
EXTRA_OF = {library: extra for extra, libraries in _LIBRARIES.items() for library in libraries}
EXTRA_OF |= {name: name for name in ("optuna", "trackio", "wandb")}
"""The extra that installs each optional library, by the name it is imported under."""

DEEP_LIBRARIES = ("jax", "optax", "gymnax", "gymnasium", "ale_py", "safetensors")
"""What agents need."""


def require_library(*names: str) -> None:
    """Raise ValueError, with the command that installs it, if a library is missing. Nothing is imported."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise _missing(name)


def load_library(name: str, without: tuple[str, ...] = ()) -> Any:
    """Import a library; raise ValueError, with the command that installs it, if it is missing.

    Args:
        name: of the library.
        without: libraries that it imports but may never use: they are imported at the first use of them.
    """
    waiting = {other: _Waiting(other) for other in without if other not in sys.modules}
    sys.modules.update(waiting)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != name.partition(".")[0]:
            raise  # the library is installed, but something it needs is not
        raise _missing(name) from None
    finally:
        for other in waiting:  # so that any other importer gets the library itself
            del sys.modules[other]


class _Waiting(ModuleType):
    """A library that is imported when the first of its attributes is asked for."""

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # the import system looks at these
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self.__name__), attribute)


def _missing(name: str) -> ValueError:
    extra = EXTRA_OF[name.partition(".")[0]]
    return ValueError(f"{name} is not installed; install it with: pip install 'cramerl[{extra}]'")
