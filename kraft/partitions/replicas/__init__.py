"""The replicas of a broker with data: leaders, followers, ISR and high watermark (Kafka: `ReplicaManager`)."""

from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.partitions.replicas.settings import DataDirectory, DataSettings

__all__ = ["DataDirectory", "DataSettings", "HostedPartition", "ReplicaManager"]
