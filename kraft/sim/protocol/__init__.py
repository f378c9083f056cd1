"""Runs of a quorum as traces, which a model checker holds against the specification in `docs/protocol`."""
