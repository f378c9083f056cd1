"""A cluster of processes on this machine, for `kraft quickstart`."""
