"""Kafka's wire protocol: messages, headers, error codes. Nothing in this package waits or uses a socket."""
