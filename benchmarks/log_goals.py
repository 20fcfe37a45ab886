"""How well predictions of `cramerl predict` fit what came: customers of CDNOW, or any file with a column of returns.

    python benchmarks/log_goals.py out/shop/customers.parquet --came came

The file has a column of the returns that came, which `cramerl predict --keep` copies. CRPS is the mean distance of a
predicted distribution from what came; smaller is better.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet

from cramerl.linear.scores import crps, pooled_crps
from cramerl.supports import Support


def main() -> None:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("predictions", type=Path, metavar="FILE", help="Parquet, from cramerl predict")
    parser.add_argument("--came", default="came", help="the column of what came (default: %(default)s)")
    options = parser.parse_args()
    table = parquet.read_table(options.predictions)
    about = json.loads(table.schema.metadata[b"cramerl"])
    support = Support(about["atoms"])
    probs = table["probs"].combine_chunks().flatten().to_numpy().reshape(len(table), support.num_atoms)
    came, predicted = table[options.came].to_numpy(), table["mean"].to_numpy()
    average = np.broadcast_to(probs.mean(axis=0), probs.shape)
    print(f"{len(table):,} rows; verdict: {about['verdict']}")
    together = np.corrcoef(predicted, came)[0, 1]
    print(f"mean predicted {predicted.mean():.2f}, came {came.mean():.2f}; correlation {together:.2f}")
    print(f"CRPS of the predictions {crps(support, probs, came).mean():.2f}")
    print(f"CRPS of the average prediction for all rows {crps(support, average, came).mean():.2f}")
    print(f"CRPS of what came, as one distribution for all rows {pooled_crps(came):.2f}")
    tenths = np.array_split(np.argsort(predicted, kind="stable"), 10)
    print("tenths by prediction: " + ", ".join(f"{predicted[i].mean():.1f} ({came[i].mean():.1f})" for i in tenths))


if __name__ == "__main__":
    main()
