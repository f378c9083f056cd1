"""Kafka's wire protocol: messages, headers, error codes. Nothing in here waits or knows a socket."""
