"""Environments of three families behind one interface: gymnax, Atari, Gymnasium. `names` tells the families apart."""
