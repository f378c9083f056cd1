"""One replica as one synchronous object over a `Disk`."""
