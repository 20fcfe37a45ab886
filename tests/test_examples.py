import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs_torch

ROOT = Path(__file__).parents[1]


def run(*command: str) -> str:
    result = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@needs_torch
def test_pytorch_example_learns_the_distribution_of_the_reward():
    rows = re.findall(
        r"state (\S+): mean (\S+), standard deviation (\S+), total mass (\S+)", run("examples/pytorch_cramer_loss.py")
    )
    assert len(rows) == 3
    for state, mean, deviation, mass in (map(float, row) for row in rows):
        assert mean == pytest.approx(state, abs=0.1)
        assert deviation == pytest.approx(0.5, abs=0.15)
        assert mass == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("library", ["numpy", "jax", pytest.param("pytorch", marks=needs_torch)])
def test_agents_with_a_loop_of_their_own_learn_when_to_stop(library):
    pattern = r"state (\S+): stop is worth (\S+), roll (\S+); a roll pays 3 with probability (\S+), 0 with (\S+)"
    rows = re.findall(pattern, run(f"examples/agent_{library}.py"))
    assert len(rows) == 3
    for state, stop, roll, three, zero in (map(float, row) for row in rows):
        chance = 0.75 ** (3 - state)
        assert stop == pytest.approx(state, abs=0.05)
        assert roll == pytest.approx(3 * chance, abs=0.15)
        assert three == pytest.approx(chance, abs=0.05)
        assert zero == pytest.approx(1 - chance, abs=0.05)


@needs_torch
def test_a_single_file_agent_is_watched(tmp_path):
    printed = run("examples/watch_c51_pytorch.py", "600", str(tmp_path / "page.html"))
    assert re.match(r"Recorder\(C51: \d+ steps in 3 episodes\)\nwrote ", printed)
    assert "C51 on CartPole-v1" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_an_agent_of_stable_baselines_is_watched(tmp_path):
    if importlib.util.find_spec("sb3_contrib") is None:
        command = [sys.executable, "examples/watch_sb3_qrdqn.py"]
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.endswith("install it with: pip install sb3-contrib\n")
        return
    assert "wrote" in run("examples/watch_sb3_qrdqn.py", "1500", str(tmp_path / "page.html"))


@pytest.mark.parametrize("page", ["README.md", "docs/start.md", "docs/logs.md"])
def test_example_prints_what_the_page_says(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    code, output = re.search(r"```python\n(.*?)```\n+```text\n(.*?)```", text, re.DOTALL).groups()  # pyright: ignore
    assert run("-c", code) == output


def test_core_benchmark_runs():
    """Its figures are its own business; that ours and the matrix version agree is asserted inside."""
    table = run("benchmarks/core.py", "--quick", "--libraries", "numpy", "--atoms", "11", "51", "--batches", "1", "32")
    assert len(table.splitlines()) == 1 + 3 * 2 * 2
