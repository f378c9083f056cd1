"""SASL as Kafka frames it: the exchanges of each mechanism, for both ends of a connection (sans-IO)."""
