"""A replica of the metadata log over a `Disk`."""
