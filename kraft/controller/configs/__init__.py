"""Decisions on configurations and quotas (Kafka: `ConfigurationControlManager`, `ClientQuotaControlManager`)."""
