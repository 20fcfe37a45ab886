"""Logs as people have them: tables with one row for each step of an episode, and what evaluation needs of them."""
