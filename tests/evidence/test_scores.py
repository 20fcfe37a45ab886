"""Names of series: which settings distinguish the variants of an agent."""

import itertools

from study_runs import column, summary_of, tables_of, write_run


def labels(path, **scoring):
    return [series.label for series in summary_of(path, **scoring).series]


def test_variants_are_named_by_what_differs(tmp_path):
    write_run(tmp_path / "a", "u51")
    write_run(tmp_path / "b", "u51", n_step=3, double_q=True)
    write_run(tmp_path / "c", "s51")
    assert labels(tmp_path) == ["s51", "u51, double_q off, n_step 1", "u51, double_q on, n_step 3"]


def test_settings_that_make_another_agent_are_always_named(tmp_path):
    write_run(tmp_path / "a", "u51", base_distribution="zero", mean_weight=0.1)
    assert labels(tmp_path) == ["u51, base_distribution zero, mean_weight 0.1"]


def test_variants_are_in_the_order_of_their_numbers(tmp_path):
    for steps in (10, 3, 1):
        write_run(tmp_path / str(steps), "u51", n_step=steps)
    assert labels(tmp_path) == ["u51, n_step 1", "u51, n_step 3", "u51, n_step 10"]


def test_different_values_have_different_names(tmp_path):
    for end in (1, 2):
        write_run(tmp_path / "close" / str(end), "c51", v_max=20.0 + end / 1e7)
    assert labels(tmp_path) == ["c51, v_max 20.0000001", "c51, v_max 20.0000002"]


def test_settings_are_compared_by_value_and_not_by_their_words(tmp_path):
    folder = "mine, mean_weight 7"  # a possible name
    for agent, weights in itertools.product(("c51", "s51"), ("", folder)):
        write_run(tmp_path / "runs" / f"{agent}{len(weights)}", agent, seeds=2, initial_weights=weights)
    names = column(tables_of(summary_of(tmp_path))["comparisons"], 0)
    assert f"s51, initial_weights {folder} against c51, initial_weights {folder}" in names
