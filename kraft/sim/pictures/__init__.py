"""Schedules for people: as lines, and as a space-time diagram."""
