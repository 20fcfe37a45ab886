"""From settings to evidence: what a run writes, the numbers drawn from it, and the pictures."""
