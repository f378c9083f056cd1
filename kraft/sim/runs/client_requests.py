"""The common part of all clients of brokers with data: requests that are lost, late or repeated, and an operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from random import Random
from typing import Final

from kraft.invariants.cluster_model import PartitionKey
from kraft.sim.nodes.data_broker import DataBroker
from kraft.sim.runs.simulator import Simulator
from kraft.sim.workloads.record_watch import FIRST_OF_RECORDS, RecordWatch
from metadata_log.serde import Message

TEND_MS: Final = 1000
"""The interval of looks at brokers with a failed log directory, which the operator restarts."""
FIRST_TOPIC_MS: Final = 500


class ClientRequests:
    """The requests of the clients of one run."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.next_id = FIRST_OF_RECORDS
        """The id of the next request."""
        self.is_over = False
        """Whether no message is lost any more."""

    def begin(self, simulator: Simulator) -> None:
        """The run begins."""
        self._simulator = simulator

    def send(self, node_id: int, request: Message, *, version: int | None = None, may_repeat: bool = True) -> None:
        """Send a request, perhaps late, perhaps twice, perhaps in vain."""
        request_id, rng = self.next_id, self._rng
        self.next_id += 1
        if self.is_over:
            self._simulator.administer(node_id, request_id, request, version)
            return
        draw = rng.random()
        if draw < 0.03:
            return
        delay_ms = rng.randint(1, 800) if draw < 0.1 else 0
        schedule, arrive = self._simulator.queue.schedule, self._simulator.administer
        schedule(delay_ms, partial(arrive, node_id, request_id, request, version))
        if draw > 0.9 and may_repeat:
            copy_id = self.next_id
            self.next_id += 1
            late_ms = delay_ms + rng.randint(1, 1500)
            schedule(late_ms, partial(arrive, node_id, copy_id, request, version))


def leader_of(rng: Random, watch: RecordWatch, key: PartitionKey, broker_ids: Sequence[int]) -> int:
    """The leader of a partition by the committed metadata; any broker for a partition without a leader."""
    partition = watch.ledger.partition_of(key)
    if partition is None or partition.leader not in broker_ids:
        return rng.choice(broker_ids)
    return partition.leader


def restart_without_directory(simulator: Simulator, broker_ids: Iterable[int]) -> None:
    """Restart each broker with a failed log directory, once its disk takes bytes again."""
    for node_id in broker_ids:
        host = simulator.world.hosts[node_id]
        member = host.member
        assert isinstance(member, DataBroker), member
        manager = member.manager
        is_full = host.is_disk_limited or host.full_directory
        if manager is not None and manager.failed_directories and not is_full:
            simulator.crash(node_id, 1)
