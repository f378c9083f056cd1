"""Tools for operators of a quorum: what to compute. `kraft.cli` parses arguments and prints."""
