"""Copies and fingerprints of what a node holds, by its fields."""
