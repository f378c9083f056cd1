"""A broker: its protocol with the controllers, its partitions, and what it answers (Kafka: `BrokerServer`)."""

from kraft.broker.agent import BrokerAgent
from kraft.broker.lifecycle import BrokerLifecycle, LifecycleState, NoLogDirectory, RegistrationFailed
from kraft.broker.settings import BrokerListener, BrokerOptions, BrokerSettings

__all__ = [
    "BrokerAgent",
    "BrokerLifecycle",
    "BrokerListener",
    "BrokerOptions",
    "BrokerSettings",
    "LifecycleState",
    "NoLogDirectory",
    "RegistrationFailed",
]
