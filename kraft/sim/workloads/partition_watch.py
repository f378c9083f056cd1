"""Shows the partition ledger all committed batches, and the metadata of each node."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kraft.broker import LifecycleState
from kraft.controller import QuorumController
from kraft.invariants.partitions import PartitionLedger
from kraft.invariants.violation import InvariantViolated
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.workloads.admin_workload import is_unclean_election
from kraft.sim.workloads.voter_watch import VoterWatch
from kraft.sim.world.member_interface import Member, Output
from kraft.sim.world.simulated_quorum import SimulatedQuorum
from metadata_log.image import Broker, MetadataImage, Partition
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch
from transport.protocol.messages.elect_leaders import ElectLeadersRequest


class PartitionWatch:
    """The `Watch` of a world with brokers."""

    def __init__(self, broker_ids: tuple[int, ...]) -> None:
        """Begin with empty metadata, and with these brokers."""
        self.ledger = PartitionLedger()
        self._broker_ids = broker_ids
        self._checked: dict[tuple[int, bool], MetadataImage] = {}
        """The last image of each controller and of each broker, which is true in the key: a node may be both."""
        self._place = 0
        self._judged: tuple[MetadataImage | None, str] = (None, "")
        """The last committed image, and which of its partitions is not whole."""

    def submitting(self, submit_id: int, line: str, world: SimulatedQuorum) -> None:
        """Nothing to do: the ledger of the world observes the outcome."""

    def administering(self, request: Message) -> None:
        """From now on unclean elections are legal if this request is for them. The decision may come late."""
        if is_unclean_election(request):
            assert isinstance(request, ElectLeadersRequest), request
            for asked in request.topic_partitions or []:
                topic_id = self.ledger.image.topics.by_name.get(asked.topic)
                if topic_id is not None:
                    self.ledger.forced.update((topic_id, number) for number in asked.partitions)

    def started(self, member: Member, world: SimulatedQuorum) -> None:
        """A node has started; a broker perhaps after a clean shutdown."""
        assert isinstance(member, ReplicaMember), member
        for is_published in (False, True):
            self._checked.pop((member.node_id, is_published), None)
        agent = member.agent
        if agent is not None:
            settings = agent.settings
            self.ledger.clean_starts[settings.incarnation_id] = settings.options.previous_epoch >= 0
        self._look(member, world)

    def stepped(self, member: Member, outputs: list[Output], world: SimulatedQuorum) -> None:
        """A node has completed a step: check newly committed batches, the metadata of the node, and its decisions."""
        assert isinstance(member, ReplicaMember), member
        controller = self._look(member, world)
        if controller is not None:
            host = world.hosts[member.node_id]
            known_to = controller.history.committed.end.offset
            registered_at = partial(self._registered_at, known_to)
            member.contacts.check(controller, registered_at, host.clock_ms(world.now_ms))

    def _registered_at(self, known_to: int, broker: Broker) -> int:
        """The offset of a broker's last registration below an offset, or at least a lower bound: the epoch."""
        epoch, offset = self.ledger.registrations.get(broker.id, (broker.epoch, broker.epoch))
        return offset if epoch == broker.epoch and offset < known_to else broker.epoch

    def not_fenced(self, broker_ids: Iterable[int]) -> list[int]:
        """The brokers among these that are registered and not fenced."""
        by_id = self.ledger.image.brokers.by_id
        return [one for one in broker_ids if one in by_id and not by_id[one].fenced]

    def _look(self, member: ReplicaMember, world: SimulatedQuorum) -> QuorumController | None:
        """Look at newly committed batches and at the metadata of a node; returns its controller, if it has one."""
        commits = world.invariants.commits
        while self._place < len(commits.batches):
            batch, values = commits.batches[self._place], commits.values[self._place]
            self._place += 1
            if values:
                end = OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset)
                self.ledger.committed(values, batch.base_offset, end)
        controller, broker = member.controller, member.broker
        if controller is not None:
            self._check_image(member.node_id, controller.history.committed, is_published=False)
        if broker is not None:
            self._check_image(member.node_id, broker.agent.image, is_published=True)
        return controller

    def _check_image(self, node_id: int, image: MetadataImage, *, is_published: bool) -> None:
        before = self._checked.get((node_id, is_published))
        if before is not image:
            if before is not None and image.end.offset < before.end.offset:
                raise InvariantViolated(
                    f"the committed metadata of node {node_id} goes back from offset {before.end.offset} to"
                    f" {image.end.offset}"
                )
            self._checked[node_id, is_published] = image
            self.ledger.check_node(node_id, image, is_published=is_published)

    def concluded(self, world: SimulatedQuorum) -> None:
        """The run is over: check the image of all committed records."""
        self.ledger.concluded()

    def unsettled(self, world: SimulatedQuorum) -> str:
        """The requirement after the end of all faults that is not met yet; empty if none."""
        image = self.ledger.image
        unfenced = self.not_fenced(sorted(world.kept_down))
        if unfenced:
            return f"brokers {unfenced} stay down, and are not fenced"
        for broker_id in self._broker_ids:
            member = world.hosts[broker_id].member
            assert isinstance(member, ReplicaMember), member
            agent = member.agent
            if agent is None or agent.lifecycle.state is not LifecycleState.RUNNING or agent.lifecycle.is_fenced:
                return f"broker {broker_id} is not running: {agent and agent.lifecycle.state}"
            registered = image.brokers.by_id.get(broker_id)
            if registered is None or not registered.is_active or registered.epoch != agent.lifecycle.epoch:
                return f"broker {broker_id} is not active: {registered}"
        if self._judged[0] is not image:
            self._judged = image, _not_whole(image)
        return self._judged[1] or VoterWatch().unsettled(world)


def _not_whole(image: MetadataImage) -> str:
    """The first partition that is not whole and can be; empty if there is none."""
    for name in image.topics:
        for number, partition in enumerate(image.topics[name].partitions):
            if not _is_whole(partition) and not is_hopeless(partition):
                return f"{name}-{number} is not whole: {partition}"
    return ""


def _is_whole(partition: Partition) -> bool:
    return partition.leader >= 0 and set(partition.isr) == set(partition.replicas) and not partition.is_reassigning


def is_hopeless(partition: Partition) -> bool:
    """Whether the partition stays without a leader until a requested unclean election, as in Kafka 4.3.1.

    Either min.insync.replicas was set while there was no leader, which clears the eligible leaders (ClearElr). Or a
    reassignment removed all eligible replicas; even the last known leader must wait for them.
    """
    if partition.isr or set(partition.elr) & set(partition.replicas):
        return False
    return bool(partition.elr) or not partition.last_known_elr
