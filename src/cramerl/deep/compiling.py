"""How the loops' programs are compiled."""

from __future__ import annotations

from typing import Any

import jax

# The whole loop of updates as one CUDA graph, whose independent kernels run side by side: a kernel of these small
# networks takes microseconds, about as long as launching it.
_GRAPHS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,WHILE,CONDITIONAL,DYNAMIC_SLICE_FUSION",
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}


def compiler_options() -> dict[str, Any] | None:
    """Options of ``jax.jit`` for programs of many small kernels."""
    return _GRAPHS if jax.default_backend() == "gpu" else None
