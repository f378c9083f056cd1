"""One process of a cluster as one synchronous object: the replica of the metadata log, and the parts that use it."""
