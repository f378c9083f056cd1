"""Groups and their offsets (Kafka: `org.apache.kafka.coordinator.group`)."""
