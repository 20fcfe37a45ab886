"""Agents that learn from play: thin heads on one learner, in JAX. Needs ``pip install 'cramerl[deep]'``."""
