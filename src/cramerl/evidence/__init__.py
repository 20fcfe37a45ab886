"""Many runs to numbers: learning curves, scores, statistics."""
