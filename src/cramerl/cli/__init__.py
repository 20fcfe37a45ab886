"""The ``cramerl`` command: one module for each of its commands."""
