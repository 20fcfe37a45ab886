"""Tables of other libraries' runs: which column means what, what a row counts, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cramerl.evidence.curves import final_score
from cramerl.evidence.foreign.columns import find_columns
from cramerl.evidence.foreign.reading import log_at, read_logs
from cramerl.evidence.foreign.tables import read_table

HEADER = "agent,env,seed,step,return"
ROWS = ["ppo,CartPole-v1,0,100,10", "ppo,CartPole-v1,0,200,20", "ppo,CartPole-v1,1,200,40", "a2c,CartPole-v1,0,200,5"]


def table(path: Path, rows: list[str], header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *rows]))
    return path


def read(path: Path, **columns: str):
    return read_table(path, columns)


def test_each_agent_game_and_seed_is_a_run(tmp_path):
    found = {log.name: log for log in read(table(tmp_path / "a.csv", ROWS))}
    assert list(found) == [("ppo", "CartPole-v1", 0), ("ppo", "CartPole-v1", 1), ("a2c", "CartPole-v1", 0)]
    first = found["ppo", "CartPole-v1", 0]
    assert (first.steps.tolist(), first.returns.tolist(), first.episodes.tolist()) == ([100, 200], [10, 20], [1, 1])


@pytest.mark.parametrize("weights", [False, True])
def test_a_score_is_the_mean_over_the_last_fifth(tmp_path, weights):
    rng = np.random.default_rng(3)
    steps, returns, counts = np.arange(1, 101) * 10, rng.normal(size=100), rng.integers(1, 9, 100)
    rows = [f"x,g,7,{a},{b!r},{c}" for a, b, c in zip(steps.tolist(), returns.tolist(), counts.tolist(), strict=True)]
    path = table(tmp_path / "a.csv", rows, HEADER + (",episodes" if weights else ",other"))
    (curve,) = read_logs([log_at(path)])
    total = (returns * counts)[80:].sum() / counts[80:].sum() if weights else returns[80:].sum() / 20
    assert final_score(curve) == pytest.approx(total, rel=1e-12)
    assert (curve.seed, curve.finished, curve.learned_with) == (7, True, {})


POINTS = st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 3), st.floats(-1e6, 1e6) | st.none())


@settings(max_examples=50, deadline=None)
@given(st.lists(POINTS, min_size=1, max_size=30), st.randoms())
def test_the_order_of_rows_does_not_matter(tmp_path_factory, points, random):
    folder = tmp_path_factory.mktemp("order")
    rows = [f"{agent},g,{seed},{step},{'' if value is None else repr(value)}" for agent, seed, step, value in points]
    first = read_logs([log_at(table(folder / "a.csv", rows))])
    random.shuffle(rows)
    second = read_logs([log_at(table(folder / "a.csv", rows))])
    assert [curve.subject for curve in first] == [curve.subject for curve in second]
    for one, other in zip(first, second, strict=True):
        for name in ("steps", "returns", "episodes"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert (np.diff(one.steps) > 0).all()


def test_the_order_of_rows_does_not_matter_for_the_last_digit(tmp_path):
    values = [0.1, 0.2, 0.3]
    assert sum(values) != sum(values[::-1])
    found = set()
    for order in itertools.permutations(values):
        (log,) = read(table(tmp_path / "a.csv", [f"x,g,0,1,{value}" for value in order]))
        found.add(log.returns[0])
    assert len(found) == 1


def test_rows_at_one_step_are_averaged_and_a_remark_says_so(tmp_path):
    rows = ["x,g,0,10,1,3", "x,g,0,10,5,1", "x,g,0,10,,9", "x,g,0,20,4,1", "x,g,0,0,99,1"]
    (log,) = read(table(tmp_path / "a.csv", rows, HEADER + ",episodes"))
    assert (log.steps.tolist(), log.returns.tolist(), log.episodes.tolist()) == ([10, 20], [2, 4], [4, 1])
    assert "2 rows have the same step as another row of x on g, seed 0" in log.remarks[0]
    assert "wrong if two runs go by one seed" in log.remarks[0]


def test_seeds_agents_and_frames(tmp_path):
    rows = ["g,1.0,4", " g ,1,8", "Breakout-v5,first try,8"]
    found = read(table(tmp_path / "rainbow.csv", [f"{row},1" for row in rows], "game,run,frames,score"))
    assert [log.name for log in found] == [("rainbow", "g", 1), ("rainbow", "Breakout-v5", "first try")]
    atari = table(tmp_path / "b.csv", ["ALE/Pong-v5,8,1", "other,8,2"], "game,frames,score")
    (pong, other) = read(atari)
    assert (pong.steps.tolist(), other.steps.tolist()) == ([2], [8])
    assert any("4 of them are taken for a step" in remark for remark in pong.remarks)
    assert any("no column of seeds" in remark for remark in pong.remarks)


def test_columns_go_by_many_names_and_can_be_named(tmp_path):
    names = ["Algo", "env_id", "charts/Episodic Return", "global-step", "seed", "wall_time"]
    found = find_columns(names, {}, tmp_path)
    assert found == {"agent": 0, "env": 1, "return": 2, "step": 3, "seed": 4}
    assert find_columns(["step", "global_step", "env", "return"], {}, tmp_path)["step"] == 0  # the plain name
    named = find_columns(["reward", "score", "t", "env"], {"return": "score", "step": "t"}, tmp_path)
    assert named == {"return": 1, "step": 2, "env": 3}


@pytest.mark.parametrize(
    ("header", "columns", "message"),
    [
        ("env,seed,step", {}, r"has no column for the return .*columns return=NAME; it has: env, seed, step$"),
        ("env,score,global_step,frames", {}, "may be the step: 'global_step' and 'frames'; say which, as in columns"),
        ("env,step,return", {"agent": "algo"}, "has no column 'algo' for the agent; it has: env, step, return"),
        ("env,step,step,return", {}, "several columns that may be the step: 'step' and 'step'"),
        ("env,step,return", {"colour": "x"}, "columns must be named for agent, env, seed, step, return, episodes"),
    ],
)
def test_unknown_and_ambiguous_columns_are_a_sentence(tmp_path, header, columns, message):
    with pytest.raises(ValueError, match=message):
        read(table(tmp_path / "a.csv", ["g,1,1,1"], header), **columns)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a.csv is empty"),
        ("\n\n", "a.csv is empty"),
        (HEADER, "has columns but no rows"),
        (f"{HEADER}\nx,g,0,1", "line 2 has 4 values, but there are 5 columns"),
        (f"{HEADER}\nx,g,0,soon,1", "line 2: 'soon' is not a number"),
        (f"{HEADER}\nx,g,0,1,1\nx,g,0,1.5,1", "line 3: the step must be a whole number from 0 on, got 1.5"),
        (f"{HEADER}\nx,g,0,-1,1", "the step must be a whole number from 0 on, got -1"),
        (f"{HEADER}\nx,g,0,,1", "the step must be a whole number from 0 on, got nan"),
        (f"{HEADER}\nx,g,0,1e30,1", "the step must be"),
        (f"{HEADER}\nx,g,0,1,inf", "the return must be a number of at most 1e.15, got inf"),
        (f"{HEADER}\nx,g,0,1,1e308", "the return must be a number of at most"),
        (f"{HEADER}\n,g,0,1,1", "line 2: the agent is empty"),
        (f"{HEADER}\n{'x' * 101},g,0,1,1", "the agent must have at most 100 characters, it has 101"),
        (f"{HEADER},episodes\nx,g,0,1,1,-2", "the number of episodes must be from 0"),
        (f"{HEADER}\nx,g,0,1,{'1' * 200_000}", "line 2 is not CSV: field larger than"),
        (b"\xff\xfe\x00", "is not a text in UTF-8"),
    ],
)
def test_damaged_tables_are_a_sentence(tmp_path, content, message):
    path = tmp_path / "a.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        read(path)


def test_a_table_with_a_mark_comments_and_tabs(tmp_path):
    text = "# by x\n" + "\n".join([HEADER, *ROWS]) + "\n\n"
    (tmp_path / "a.tsv").write_bytes("\ufeff".encode() + text.replace(",", "\t").encode())
    assert len(read(tmp_path / "a.tsv")) == 3


def test_a_parquet_file_is_read_like_a_csv_file(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.read_csv(table(tmp_path / "a.csv", [*ROWS, "a2c,CartPole-v1,0,300,"]))
    frame.to_parquet(tmp_path / "a.parquet")
    for one, other in zip(read(tmp_path / "a.csv"), read(tmp_path / "a.parquet"), strict=True):
        assert one.name == other.name
        np.testing.assert_array_equal(one.returns, other.returns)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(ValueError, match=r"b.parquet is not a Parquet file"):
        read(tmp_path / "b.parquet")
    frame.assign(agent=[["list"]] * len(frame)).to_parquet(tmp_path / "c.parquet")
    with pytest.raises(ValueError, match="row 1: "):
        read(tmp_path / "c.parquet")


def test_many_agents_are_a_mistake(tmp_path):
    path = table(tmp_path / "a.csv", [f"run {i},g,0,1,1" for i in range(41)])
    with pytest.raises(ValueError, match="at most 40 agents, the logs have 41, such as run 0 and run 9"):
        read_logs([log_at(path)])


def test_seeds_that_are_written_differently_are_different_runs(tmp_path):
    seeds = ["1_0", "10", "1e1", "007", "7", "7.0", "\uff17", "-3"]
    rows = [f"ppo,g,{seed},{step},{i}" for i, seed in enumerate(seeds) for step in (10 + i, 20 + i)]
    found = {log.name.seed: len(log.steps) for log in read(table(tmp_path / "a.csv", rows))}
    assert found == {"1_0": 2, 10: 2, "1e1": 2, "007": 2, 7: 4, "\uff17": 2, -3: 2}


def test_numbers_are_written_as_tables_write_them(tmp_path):
    for value in ("1_000", "\uff11\uff10"):
        with pytest.raises(ValueError, match=r"a.csv line 2: .* is not a number"):
            read(table(tmp_path / "a.csv", [f"ppo,g,0,10,{value}"]))


def test_returns_that_are_not_numbers_are_counted(tmp_path):
    (found,) = read(table(tmp_path / "a.csv", ["ppo,g,0,10,5", "ppo,g,0,20,NaN", "ppo,g,0,30,nan", "ppo,g,0,40,"]))
    assert found.episodes.tolist() == [1, 0, 0, 0]
    (said,) = [remark for remark in found.remarks if "NaN" in remark]
    assert said.startswith("a.csv: the return is NaN in 2 rows of ppo on g, seed 0, left out.")


@pytest.mark.parametrize("name", ["frames", "charts/frames", "Frames"])
def test_frames_are_frames_whatever_stands_before_them(tmp_path, name):
    (found,) = read(table(tmp_path / "a.csv", ["x,ALE/Pong-v5,0,400,1"], f"agent,env,seed,{name},return"))
    assert found.steps.tolist() == [100]


def test_columns_that_are_not_needed_are_not_read(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"agent": ["x"], "env": ["g"], "seed": [0], "step": [10], "return": [1.0]}
    never = arrow.array([10**15], arrow.timestamp("s"))
    parquet.write_table(arrow.table(columns | {"created": never}), tmp_path / "a.parquet")
    (found,) = read(tmp_path / "a.parquet")
    assert found.returns.tolist() == [1]
    parquet.write_table(arrow.table(columns | {"seed": never}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"b.parquet: the column 'seed' cannot be read"):
        read(tmp_path / "b.parquet")
