"""Where logged transitions come from: Parquet files, Minari datasets, files on a Ray cluster."""
