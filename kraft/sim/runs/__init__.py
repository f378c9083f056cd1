"""Whole runs drawn from a seed: the simulator, and runs with brokers, with load, with changing voters."""
