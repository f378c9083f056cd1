"""The faults of a run: the nemesis, the network, a sender of hostile frames."""
