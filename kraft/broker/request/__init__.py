"""The data requests of a broker: Produce, Fetch and their like (Kafka: `kafka.server.KafkaApis`)."""

from kraft.broker.request.requests import DATA_APIS, DataRequests
from kraft.broker.request.settings import RequestSettings
from kraft.broker.rights import Rights

__all__ = ["DATA_APIS", "DataRequests", "RequestSettings", "Rights"]
