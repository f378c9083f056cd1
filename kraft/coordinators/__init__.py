"""Coordinators of groups and of transactions, and what they share (Kafka: `CoordinatorRuntime`)."""
