"""The parts of a process that use the log: the controller, the broker, a user's state machine."""
