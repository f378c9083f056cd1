"""The metrics listener of a node: what it counts in the shell, and the HTTP server in front of it."""
