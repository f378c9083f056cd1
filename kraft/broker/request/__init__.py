"""The data requests of a broker: Produce, Fetch and their like (Kafka: `kafka.server.KafkaApis`)."""
