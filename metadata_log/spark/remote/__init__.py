"""Logs in object stores: the reading half of a disk, the tasks of a query, and the index for a stream."""
