"""The files of a log directory as a reader sees them, without a lock: entries, damage, timeline, replay."""
