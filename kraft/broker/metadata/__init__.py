"""Requests that a broker answers from its metadata image alone, or forwards to the active controller."""
