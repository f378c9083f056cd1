"""The replicas of a broker with data: leaders, followers, ISR and high watermark (Kafka: `ReplicaManager`)."""

from kraft.broker.partitions.hosted_partition import HostedPartition
from kraft.broker.partitions.manager import ReplicaManager
from kraft.broker.partitions.settings import DataDirectory, DataSettings

__all__ = ["DataDirectory", "DataSettings", "HostedPartition", "ReplicaManager"]
