"""The commands that run a node, a local cluster or a simulation, and those that prepare a node."""
