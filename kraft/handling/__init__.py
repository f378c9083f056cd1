"""Common parts of all rooms that answer requests: steps, waiting, rights, settings."""
