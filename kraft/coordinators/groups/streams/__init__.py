"""Streams groups (KIP-1071): groups whose members run the tasks of a topology of Kafka Streams."""
