"""Reads of metadata that controllers and brokers answer by the same functions."""
