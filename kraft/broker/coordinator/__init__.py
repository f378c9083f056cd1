"""What coordinators share: the state of a partition of an internal topic, its load, its writes, its timers."""
