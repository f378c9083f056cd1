"""The replicas of a broker with data: leaders, followers, ISR and high watermark (Kafka: `ReplicaManager`)."""

from kraft.broker.replica.hosted_partition import HostedPartition
from kraft.broker.replica.manager import ReplicaManager
from kraft.broker.replica.settings import DataDirectory, DataSettings

__all__ = ["DataDirectory", "DataSettings", "HostedPartition", "ReplicaManager"]
