"""`cramerl predict`: return distributions of new rows, from an evaluation of a log."""

from __future__ import annotations

import argparse
from pathlib import Path

from cramerl.cli.flags import Outputs, number_in, probability, show_progress
from cramerl.cli.log_flags import errors_name_flags, numbers_of

EXAMPLES = """\
examples:
  cramerl evaluate --data icu.parquet ... --out out/icu             first evaluate a log
  cramerl predict out/icu --data new.parquet                        the first rows, as a table
  cramerl predict out/icu --data new.parquet --out predicted.parquet --keep patient
  cramerl predict out/icu --data new.csv --out predicted.csv --quantiles 0.1,0.9 --cvar 0.05
  cramerl predict out/icu --data new.parquet --policy careful       where several policies were evaluated

The file has a row for each row of the new data, in their order: mean, quantiles (q0.05), means of the worst returns
(cvar0.1), the probabilities of the returns at the atoms, and in "unlike" what a row has that the log never had: such
an answer is a guess. In Parquet the probabilities are a list, "probs", and the metadata "cramerl" has the atoms; in CSV
they are columns such as p[-1.5], with the atom in brackets. The new data needs the columns of the state, and those of
the policy if it was named by columns. The folder may come from others: nothing in it is run.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "The distribution of the return from each row of new data, as an evaluation of a log predicts it: mean,\n"
        "quantiles, the mean of the worst returns and probabilities. Says which rows are unlike those of the log."
    )
    parser.epilog = EXAMPLES
    fraction = number_in("in (0, 1]", lambda value: 0 < value <= 1)
    add = parser.add_argument
    add("folder", type=Path, metavar="OUT", help="folder that cramerl evaluate --data wrote")
    add("--data", required=True, metavar="PATH", help="the new rows: as in cramerl evaluate --data")
    add("--out", type=Path, metavar="FILE", help="a .parquet or .csv file to write (default: print the first rows)")
    add("--policy", metavar="NAME", help="which of the policies that were evaluated")
    add("--keep", metavar="COLUMNS", help="columns of the new data to copy, such as an identifier; wildcards are fine")
    add("--quantiles", type=numbers_of(probability), metavar="LEVELS", help="(default: 0.05,0.5,0.95)")
    add("--cvar", type=numbers_of(fraction), metavar="FRACTIONS", help="(default: 0.1,0.25)")
    add("--overwrite", action="store_true", help="replace the file of --out if it is there")


def run(options: argparse.Namespace) -> int:
    """Predict the returns of new rows."""
    from cramerl import evaluations
    from cramerl.linear.logs.wording import CVARS, QUANTILES

    outputs = Outputs(evaluations.PREDICTED_BY, overwrite=options.overwrite)
    if options.out is not None:
        if options.out.suffix not in (".parquet", ".csv"):
            raise ValueError(f"--out must be a .parquet or .csv file, got {options.out}")
        outputs.check("--out", options.out)
    with errors_name_flags():
        saved = evaluations.read_saved(options.folder, options.policy)
        asked = evaluations.Asked(options.quantiles or QUANTILES, options.cvar or CVARS, options.keep)
        parts = evaluations.predicted(saved, options.data, asked, show_progress)
        if options.out is None:
            text, counted = evaluations.first_rows(parts)
            print(text, end="\n\n")
        else:
            counted = evaluations.write_predictions(saved, parts, options.out)
    show_progress("")
    print(evaluations.predictions_summary(saved, counted))
    if options.out is not None:
        print(outputs.say(options.out))
    return 0
