"""One run: its settings, its folder, its training, and the agent that comes out."""
