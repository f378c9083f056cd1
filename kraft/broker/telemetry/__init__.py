"""The metrics of clients: what they are asked for, and what they push (Kafka: `ClientMetricsManager`; KIP-714)."""
