"""Commands that diagnose a quorum."""
