"""A schema registry: the REST API of the common registry, over a compacted topic in its format (`_schemas`)."""
