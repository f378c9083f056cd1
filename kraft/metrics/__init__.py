"""The metrics and the health of a node as pure functions of its state, under Kafka's names and our own."""
