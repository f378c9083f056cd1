"""Common parts of all decisions: the caller and its rights, broker sessions, defaults, and the result."""
