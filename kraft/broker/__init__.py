"""The broker agent: what a broker is to the controller, without any data (Kafka: `BrokerServer`, minus its log)."""

from kraft.broker.agent import BrokerAgent, Send
from kraft.broker.lifecycle import BrokerLifecycle, LifecycleState, RegistrationFailed
from kraft.broker.settings import BrokerListener, BrokerOptions, BrokerSettings

__all__ = [
    "BrokerAgent",
    "BrokerLifecycle",
    "BrokerListener",
    "BrokerOptions",
    "BrokerSettings",
    "LifecycleState",
    "RegistrationFailed",
    "Send",
]
