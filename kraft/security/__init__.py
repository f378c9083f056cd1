"""Transport security: key stores, contexts of TLS, the names in certificates (Kafka: `SslFactory`)."""
