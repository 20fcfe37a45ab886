"""The shell commands of docs/logs.md: minutes, so beside those of the other pages, which another worker runs."""

import pytest
from shell_pages import check_page


@pytest.mark.slow
def test_commands_run_and_print_what_the_page_shows(tmp_path):
    check_page("logs.md", tmp_path)
