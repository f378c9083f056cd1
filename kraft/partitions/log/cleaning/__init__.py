"""Compaction: the cleaner keeps the last record of each key (Kafka: `LogCleaner`, `Cleaner`, `LogCleanerManager`)."""
