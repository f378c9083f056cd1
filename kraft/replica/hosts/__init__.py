"""The applications of a replica: the controller, a broker agent, a user's state machine."""
