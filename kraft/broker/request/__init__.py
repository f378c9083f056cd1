"""The data requests of a broker: Produce, Fetch and their like (Kafka: `kafka.server.KafkaApis`)."""

from kraft.broker.asked import Asked
from kraft.broker.request.outcomes import Answer, Close, Outcome, Rights
from kraft.broker.request.requests import DATA_APIS, DataRequests
from kraft.broker.request.settings import RequestSettings

__all__ = ["DATA_APIS", "Answer", "Asked", "Close", "DataRequests", "Outcome", "RequestSettings", "Rights"]
