"""The files of a log directory as a node writes them: segments, indexes, epochs, snapshots, quorum-state."""
