"""Saved evaluations: what is read back predicts exactly what was saved, and a file that was changed is refused."""

import io
import json
import os
import zipfile

import numpy as np
import pytest

from cramerl.linear import Log, evaluate_policy, load_evaluation, save_evaluation
from cramerl.linear.logs.saved_evaluation import MODEL_FILE

ROWS = {
    "age": [20.0, 55.5, 90.0, 31.0],
    "mass": [60.0, 100.0, 80.0, 71.0],
    "ward": ["icu", "surgery", "moon", "icu"],
    "code": [1, 2, 3, 9],
    "new_0": [0.5, 1.0, 0.0, 0.25],
    "new_1": [0.5, 0.0, 1.0, 0.75],
}
BASES = ("columns", "bins:4", "splines:4", "cells:5", "rbf:6", "fourier:3", "random:12")


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, 80)
    rows, last = int(lengths.sum()), np.cumsum(lengths) - 1
    chance = rng.random(rows)
    made = {
        "who": np.repeat(np.arange(80), lengths),
        "age": rng.integers(18, 80, rows) / 2,
        "mass": rng.normal(80, 9, rows),
        "ward": rng.choice(np.array(["icu", "surgery"]), rows),
        "code": rng.integers(1, 4, rows),
        "action": rng.integers(0, 2, rows),
        "reward": rng.normal(size=rows),
        "ended": np.isin(np.arange(rows), last[::3]),
        "new_0": chance,
        "new_1": 1 - chance,
    }
    names = {"state": ["age", "mass", "ward"], "categorical": "code", "action": "action", "terminated": "ended"}
    return Log.read(made, episode="who", **names, discount=0.9)


def evaluated(log, policy=None, features="splines:4"):
    return evaluate_policy(log, policy, features=features, regularisation=1e-2, intervals="none", num_atoms=11)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.filterwarnings("ignore")
def test_predictions_come_back_exactly(basis, log, tmp_path):
    found = evaluated(log, {"new": "new_*", "log": None, "even": np.array([0.5, 0.5])}, basis)
    save_evaluation(found, tmp_path)
    for name, each in found.items():
        saved = load_evaluation(tmp_path, name)
        np.testing.assert_array_equal(saved.predict(ROWS), each.predict(ROWS))
        assert saved.support == each.model.support_
        assert (saved.policy, saved.verdict, saved.reasons) == (name, each.trust.verdict, each.trust.reasons)
    with pytest.raises(ValueError, match=r"policy must be one of new, log, even, .*, got None"):
        load_evaluation(tmp_path)
    with pytest.raises(ValueError, match=r"policy must be one of new, log, even, .*, got 'newer'"):
        load_evaluation(tmp_path, "newer")


def test_a_policy_that_is_a_table_of_the_state(log, tmp_path):
    rng = np.random.default_rng(1)
    made = {"s": rng.integers(0, 3, 90), "a": rng.integers(0, 2, 90), "reward": rng.normal(size=90)}
    made |= {"who": np.arange(90) // 3, "end": np.arange(90) % 3 == 2}
    for categorical in ("s", ()):
        log = Log.read(made, episode="who", state="s", categorical=categorical, action="a", terminated="end")
        found = evaluated(log, np.array([1, 0, 1]))
        save_evaluation(found, tmp_path)
        states = np.array([[0], [2], [1]])
        np.testing.assert_array_equal(load_evaluation(tmp_path).predict(states), found.predict(states))


def test_rows_unlike_those_of_the_log(log, tmp_path):
    save_evaluation(evaluated(log), tmp_path)
    saved = load_evaluation(tmp_path)
    one, two, three, four = saved.unlike(ROWS)
    assert (one, two) == ("", "age is 55.5, the log has 9 to 39.5")
    assert three == "age is 90, the log has 9 to 39.5; ward has a value that the log never had"
    assert four == "code has a value that the log never had"
    assert repr(saved) == "SavedEvaluation(splines:4, discount 0.9, verdict 'care')"


def test_functions_cannot_be_saved(log, tmp_path):
    with pytest.raises(ValueError, match="features must be named ones to be saved"):
        save_evaluation(evaluated(log, features=lambda states: states[:, :1]), tmp_path)
    with pytest.raises(ValueError, match="policy must be arrays or names of columns to be saved"):
        save_evaluation(evaluated(log, lambda states: np.full((len(states), 2), 0.5)), tmp_path)
    assert not list(tmp_path.iterdir())


def changed(path, change):
    """Write the model again after ``change`` of its arrays and of what is said about them."""
    with np.load(path) as found:
        arrays = {name: found[name] for name in found.files}
    about = json.loads(arrays.pop("about").tobytes())
    change(about, arrays)
    arrays = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays}
    np.savez(path, **arrays)


def one_array_less(about, arrays):
    del arrays[about["policies"][0]["weights"]["array"]]


def weights_of_another_shape(about, arrays):
    name = about["policies"][0]["weights"]["array"]
    arrays[name] = arrays[name][1:]


def weights_not_finite(about, arrays):
    arrays[about["policies"][0]["weights"]["array"]][0, 0] = np.nan


def columns_that_are_not_there(about, arrays):
    arrays[about["scale"]["fields"]["columns"]["array"]][0] = 7


def knots_that_fall(about, arrays):
    arrays[about["parts"][0]["fields"]["knots"]["items"][0]["array"]][0] = 1e9


def another_kind(about, arrays):
    about["parts"][0]["kind"] = "Policy"


def many_levels(about, arrays):
    about["parts"][1]["fields"]["sizes"]["items"][0] = 10**12


def a_level_that_is_a_list(about, arrays):
    about["levels"][0] = [["icu"], "surgery"]


def another_version(about, arrays):
    about["version"] = 2


def a_verdict_of_theirs(about, arrays):
    about["policies"][0]["verdict"] = "use it, it is fine"


def atoms_that_fall(about, arrays):
    name = about["policies"][0]["atoms"]["array"]
    arrays[name] = arrays[name][::-1]


def no_policies(about, arrays):
    del about["policies"]


def a_name_that_is_a_number(about, arrays):
    about["policies"][0]["name"] = 5


def nested_deeply(about, arrays):
    for _ in range(400):
        about["scale"] = {"items": [about["scale"]]}


@pytest.mark.parametrize(
    "change",
    [
        one_array_less,
        weights_of_another_shape,
        weights_not_finite,
        columns_that_are_not_there,
        knots_that_fall,
        another_kind,
        many_levels,
        a_level_that_is_a_list,
        another_version,
        a_verdict_of_theirs,
        atoms_that_fall,
        no_policies,
        a_name_that_is_a_number,
        nested_deeply,
    ],
)
def test_a_file_that_was_changed(change, log, tmp_path):
    path = save_evaluation(evaluated(log), tmp_path)
    changed(path, change)
    with pytest.raises(ValueError, match=r"model\.npz is not what this version of cramerl evaluate writes: .*again$"):
        load_evaluation(tmp_path)


def pickled() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, about=np.array([{"a": 1}], dtype=object))
    return stream.getvalue()


def compressed() -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, about=np.zeros(10**7, np.uint8))
    return stream.getvalue()


def enormous() -> bytes:
    """An array that says it has far more numbers than there are bytes."""
    stream, array = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)})
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("about.npy", array.getvalue())
    return stream.getvalue()


def encrypted() -> bytes:
    """Entries that say they are, as one flipped bit may make them."""
    stream = io.BytesIO()
    np.savez(stream, about=np.zeros(3))
    data = stream.getvalue()
    for mark, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        place = data.index(mark) + flags
        data = data[:place] + bytes([data[place] | 1]) + data[place + 1 :]
    return data


def with_header(header: bytes) -> bytes:
    """An array with a header that NumPy never writes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("about.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    return stream.getvalue()


HEADERS = [
    b"{",
    b"((((",
    b"'",
    b"-" * 3000 + b"1",
    b"{'descr': '<U99999999999', 'fortran_order': False, 'shape': (0,), }",
]
OTHERS = [b"", b"PK\x03\x04 and no more", pickled(), compressed(), enormous(), encrypted(), *map(with_header, HEADERS)]


@pytest.mark.parametrize("content", OTHERS)
def test_a_file_that_is_something_else(content, tmp_path):
    (tmp_path / MODEL_FILE).write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.npz is not what this version of cramerl evaluate writes"):
        load_evaluation(tmp_path)


def test_a_folder_without_a_model_and_links(log, tmp_path):
    with pytest.raises(
        ValueError, match=r"folder must be one that cramerl evaluate --data wrote, .* holds no model\.npz"
    ):
        load_evaluation(tmp_path)
    (tmp_path / "there").mkdir()
    path = save_evaluation(evaluated(log), tmp_path / "there")
    os.symlink(path, tmp_path / MODEL_FILE)
    with pytest.raises(ValueError, match="is a link"):
        load_evaluation(tmp_path)
