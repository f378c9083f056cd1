"""Checks and repairs of a recovered quorum that runs."""
