"""Logs of other libraries to learning curves: tables, TensorBoard's event files, monitors, Dopamine's rows."""
