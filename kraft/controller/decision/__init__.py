"""What every decision is made of: the caller and its rights, broker sessions, defaults, and the result."""
