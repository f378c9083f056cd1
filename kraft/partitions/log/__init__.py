"""The log of a topic partition: what `metadata_log.log` has for one log, and what only records of clients need."""
