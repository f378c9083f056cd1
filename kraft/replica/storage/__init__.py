"""A replica's directory: recovery, the effects on the log, snapshots, and what records say of the quorum."""
