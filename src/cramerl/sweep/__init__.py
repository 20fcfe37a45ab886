"""Many runs to folders: what to train, where, and in which processes."""
