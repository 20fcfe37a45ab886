"""All claims, recomputed once."""

import pytest

from cramerl.claims import verify


@pytest.fixture(scope="session")
def claims():
    return verify()
