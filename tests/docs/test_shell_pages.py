"""The shell commands of the pages run in their order, and print what the pages show; docs/logs.md is elsewhere."""

import pytest
from shell_pages import RUN, check_page


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in RUN if page != "logs.md"])
def test_commands_run_and_print_what_the_page_shows(page, tmp_path):
    check_page(page, tmp_path)
