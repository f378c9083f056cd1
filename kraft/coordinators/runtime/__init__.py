"""The common part of all coordinators: a partition of an internal topic with its state, load, writes and timers."""
