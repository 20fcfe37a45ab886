"""Evaluations from logs of a small world and their pages, made once; and a browser."""

from collections.abc import Iterator
from typing import Any

import chromium as chromium_tools
import numpy as np
import pytest
from log_pages import COMMAND, HOSTILE, small_log
from small_worlds import TARGET

from cramerl.evaluations import write_page
from cramerl.linear import evaluate_policy


@pytest.fixture(scope="session")
def own():
    """Of the policy that made the log: all parts of the page are there."""
    return evaluate_policy(small_log())


@pytest.fixture(scope="session")
def few():
    """Of four episodes: not to be used."""
    return evaluate_policy(small_log(4))


@pytest.fixture(scope="session")
def several():
    """Of three policies, two with hostile names."""
    policies = {"as now": None, HOSTILE[0]: TARGET, HOSTILE[1]: np.array([0.1, 0.9])}
    return evaluate_policy(small_log(), policies)


@pytest.fixture(scope="session")
def pages(own, few, several, tmp_path_factory):
    """The pages' paths by name."""
    found = {"own": own, "few": few, "several": several}
    return {name: write_page(one, tmp_path_factory.mktemp(name), COMMAND) for name, one in found.items()}


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium_tools.open_chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser
