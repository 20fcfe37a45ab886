"""One trained run for all tests of commands that need one."""

import subprocess
from pathlib import Path

import pytest
from commands import run_process
from tiny import TINY


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A run of a few seconds, and what the command printed."""
    folder = tmp_path_factory.mktemp("runs") / "my run"
    result = run_process("train", "s51", "CartPole-v1", *TINY, "--out", folder, "--eval-episodes", "1e0")
    assert result.returncode == 0, result.stderr
    return folder, result
