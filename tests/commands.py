"""The command line in tests: in this process, where imports and compiled programs are shared, or in a new one."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from lenient import lenient

from cramerl.cli.main import main

# SIGINT is ignored in processes started in the background; a terminal does not do that, so put the default back.
FROM_A_TERMINAL = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from cramerl.cli.main import main
print("ready", flush=True)
sys.exit(main(sys.argv[1:]))
"""


class Result(NamedTuple):
    """What a command printed, and its exit status."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object, cwd: str | Path = ".") -> Result:
    """Run ``cramerl`` in this process."""
    out, err = io.StringIO(), io.StringIO()
    before = signal.getsignal(signal.SIGTERM)
    streams = (contextlib.redirect_stdout(out), contextlib.redirect_stderr(err))
    try:
        with lenient(), contextlib.chdir(cwd), streams[0], streams[1]:
            status = main([str(argument) for argument in arguments])
    except SystemExit as stop:  # argparse
        status = int(stop.code or 0)
    finally:
        signal.signal(signal.SIGTERM, before)
    return Result(status, out.getvalue(), err.getvalue())


def refused(*arguments: object, cwd: str | Path = ".") -> str:
    """The last line that a command prints when it refuses its arguments."""
    result = run(*arguments, cwd=cwd)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    *usage, last = result.stderr.splitlines()
    assert not usage or usage[0].startswith(("usage: ", "training ", "resuming ", "watching "))
    return last


def run_process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``cramerl`` in a new process."""
    return python("-m", "cramerl", *arguments, **options)


def python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)
