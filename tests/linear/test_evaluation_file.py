"""evaluation.json: what is written can be read back, for a process and for a log."""

import json

import numpy as np

from cramerl import Support
from cramerl._folders import EVALUATION_FILE
from cramerl.linear import DistributionalLSTD, evaluate, examples, random_features
from cramerl.linear.evaluation_file import parse_record, write_log_record, write_process_record
from cramerl.linear.sources.layout import Layout

SUPPORT = Support.uniform(-8, 8, 9)


def test_a_process_comes_back(tmp_path):
    walk = examples.random_walk()
    found = evaluate(walk, random_features(19, 3, 0), SUPPORT, normalisation="affine")
    content = json.loads(write_process_record(found, tmp_path).read_text())
    record = parse_record(content)
    assert (record.process, record.normalisation, record.residual) == (repr(walk), "affine", found.residual)
    np.testing.assert_array_equal(record.states, np.arange(19))
    np.testing.assert_allclose(record.masses, found.masses, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(record.means, found.values, rtol=1e-5)
    np.testing.assert_allclose(record.visited, walk.stationary_distribution(), rtol=1e-5)
    assert content["certificate"]["lstd_reason"]


def test_a_log_comes_back(tmp_path):
    rng = np.random.default_rng(0)
    x, y, rewards = rng.normal(size=(50, 2)), rng.normal(size=(50, 2)), rng.normal(size=50)
    model = DistributionalLSTD(SUPPORT, 0.5).fit(x, rewards, 0.1 * y)
    path = write_log_record(model, Layout(["a", "b"], "r", "next", None), x[:5], tmp_path)
    assert path.name == EVALUATION_FILE
    content = json.loads(path.read_text())
    assert content["columns"] == {"state": ["a", "b"], "reward": "r", "next_state": "next", "terminated": None}
    record = parse_record(content)
    assert record.process is None
    np.testing.assert_allclose(record.masses, model.predict_masses(x[:5]), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(record.visited, 0.2)
