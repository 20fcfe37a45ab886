"""How the tests of the documentation read blocks of code, and compare outputs (`code_blocks`)."""

import pytest
from code_blocks import commands, shows

PRINTED = "mean  1.25   interval 1 to 2  \nmore\nand more\nwrote out/page.html (12 kB)\n"


@pytest.mark.parametrize(
    "shown",
    [
        "mean  1.25   interval 1 to 2\n",
        "mean  1.25   ...\n...\nwrote out/page.html (...)\n",
        "more\n...\nand more\n",
        "...\nand more\n...\n",
    ],
)
def test_an_output_that_was_printed(shown):
    assert shows(shown, PRINTED)


@pytest.mark.parametrize(
    "shown",
    ["mean  1.26   interval 1 to 2\n", "more\nwrote out/page.html (12 kB)\n", "wrote\n", "and more\n...\nmean ...\n"],
)
def test_an_output_that_was_not_printed(shown):
    assert not shows(shown, PRINTED)


def test_digits_and_widths_may_vary():
    assert shows("mean 31.7 interval 1 to 2\n", PRINTED, digits=False)
    assert not shows("mean 31.7 interval 1 of 2\n", PRINTED, digits=False)


def test_commands_of_a_block():
    block = "cd out  # where it is\nexport A=1 && cramerl sweep runs \\\n    --seeds 0-9\n"
    block += "MORE=--dry-run results/study.sh next 9\n"
    assert commands(block) == [
        ["cd", "out"],
        ["export", "A=1"],
        ["cramerl", "sweep", "runs", "--seeds", "0-9"],
        ["results/study.sh", "next", "9"],
    ]
