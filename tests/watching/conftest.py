"""One browser for all tests of pages."""

from collections.abc import Iterator
from typing import Any

import chromium as chromium_tools
import pytest


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium_tools.open_chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser
