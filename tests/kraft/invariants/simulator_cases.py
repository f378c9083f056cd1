"""A case for each check of the simulator and of `kraft.testing` beside the ledgers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from check_sites import Cases
from kraft.controller import QuorumController
from kraft.sim.nodes.member_kinds import LOADED, MACHINES
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.nodes.state_machine_member import Counts, Line, StateMachineMember
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.simulator import Simulator
from kraft.sim.workloads.client_history import Asked, ClientHistory
from kraft.sim.workloads.load_watch import LoadWatch
from kraft.sim.world.driver import Exchange
from kraft.sim.world.member_interface import Done, WriteOutcome
from kraft.sim.world.signs_of_life import SignsOfLife
from kraft.testing import disks
from kraft.wire import WireRequest
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from metadata_log.types import OffsetAndEpoch
from scripted_node import uuid
from transport.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
)

CASES = Cases()
# What nodes believe of disks and peers


def answered(signs: SignsOfLife, now_ms: int) -> None:
    """Node 2, the leader of epoch 3, answers a fetch of its follower, node 1."""
    exchange = Exchange(1, 1, 2, "Fetch", 1000, 1, object())
    exchange.asked_in = 3
    signs.answered(exchange, 3, now_ms)


# What clients hear


def simulated_machines() -> tuple[Simulator, ClientHistory, list[StateMachineMember]]:
    """A quorum of state machines after a run without faults, and the history of its clients."""
    simulator = Simulator(Scenario.drawn(MACHINES, 3, 1), faults=())
    simulator.chaos(4000)
    watch = simulator.world.watch
    assert isinstance(watch, ClientHistory)
    members = [host.member for host in simulator.world.hosts.values()]
    assert all(isinstance(one, StateMachineMember) for one in members)
    return simulator, watch, cast(list[StateMachineMember], members)


def asked_in(simulator: Simulator, history: ClientHistory, line: str) -> tuple[int, Asked]:
    """A client sends a request."""
    submit_id = 1_000_000
    history.submitting(submit_id, line, simulator.world)
    return submit_id, history._asked[submit_id]


@CASES("'add k1 | client-1 1' is answered with 4 first and 5 then")
def a_repeated_request_is_answered_otherwise() -> None:
    asked = Asked(Line.parse("add k1 | client-1 1"), 0, 0, 0)
    asked.hear(4, 10)
    asked.hear(4, 20)
    asked.hear(5, 30)


@CASES("leads epoch .* and answers 'read k1', though a majority had come to epoch 1000 before it was asked")
def a_deposed_leader_answers_a_read() -> None:
    simulator, history, members = simulated_machines()
    submit_id, asked = asked_in(simulator, history, "read k1")
    asked.epoch = 1000
    leader = next(one for one in members if one.view().state == "Leader")
    history.stepped(leader, [Done(submit_id, WriteOutcome.UNKNOWN, answer=(0,))], simulator.world)


@CASES("answers 'read k1' as of offset .*, though everything below 1000000 was committed before it was asked")
def a_read_is_answered_too_early() -> None:
    simulator, history, members = simulated_machines()
    submit_id, asked = asked_in(simulator, history, "read k1")
    asked.committed_end = 1_000_000
    history.stepped(members[0], [Done(submit_id, WriteOutcome.UNKNOWN, answer=(0,))], simulator.world)


@CASES("at offset .* the machine of node .* is .*'another'.*, and that of another node was")
def two_machines_at_one_offset_differ() -> None:
    simulator, history, members = simulated_machines()
    machine = members[0].host.machine
    assert isinstance(machine, Counts)
    machine.counts["another"] = 1
    history._applied.clear()
    history.stepped(members[0], [], simulator.world)


@CASES("what clients heard is not linearizable: client .* asked 'read k1' at .* and heard -1 at")
def clients_hear_what_no_order_explains() -> None:
    simulator, history, members = simulated_machines()
    submit_id, _ = asked_in(simulator, history, "read k1")
    follower = next(one for one in members if one.view().state != "Leader")
    history.stepped(follower, [Done(submit_id, WriteOutcome.UNKNOWN, answer=(-1,))], simulator.world)
    history.concluded(simulator.world)


# Controllers


@CASES("4 leaders were elected since all faults ended")
def leaders_change_without_faults() -> None:
    simulator = Simulator(Scenario.drawn(LOADED, 3, 1), faults=())
    simulator.chaos(3000)
    watch, world = simulator.world.watch, simulator.world
    assert isinstance(watch, LoadWatch)
    watch.fall_silent(world)
    for epoch in range(1001, 1005):
        world.invariants.votes.led(1, epoch, 1)
    watch.stepped(world.hosts[1].member, [], world)


@CASES("node .* has sessions of broker 999 in epoch 7, not registered")
def a_broker_that_is_not_registered_has_a_session() -> None:
    simulator = Simulator(Scenario.drawn(LOADED, 3, 1), faults=())
    simulator.chaos(3000)
    watch, world = simulator.world.watch, simulator.world
    assert isinstance(watch, LoadWatch)
    leader = world.hosts[world.leaders()[0]].member
    assert isinstance(leader, ReplicaMember)
    assert leader.controller is not None
    leader.controller._sessions._contacts[999, 7] = 0
    watch.stepped(leader, [], world)


TOPIC = uuid(77)


def controller() -> QuorumController:
    """An active controller as the watch sees it: metadata in which broker 1, of epoch 5, leads a partition."""
    delta = MetadataDelta(MetadataImage())
    records = (
        RegisterBrokerRecord(broker_id=1, broker_epoch=5, incarnation_id=uuid(1)),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1),
        TopicRecord(name="t", topic_id=TOPIC),
        PartitionRecord(
            partition_id=0, topic_id=TOPIC, replicas=(1,), isr=(1,), leader=1, leader_epoch=2, partition_epoch=4,
            directories=(uuid(9),),
        ),
    )  # fmt: skip
    for offset, record in enumerate(records):
        delta.replay(record, offset)
    image = delta.apply(OffsetAndEpoch(epoch=1, offset=len(records)))
    return cast(QuorumController, SimpleNamespace(is_active=True, history=SimpleNamespace(latest=image)))


def alter_partition(broker_epoch: int, leader_epoch: int) -> WireRequest:
    """Broker 1 asks for the ISR that the partition has."""
    partition = AlterPartitionRequestPartitionData(partition_index=0, leader_epoch=leader_epoch, partition_epoch=4)
    topic = AlterPartitionRequestTopicData(topic_id=TOPIC, partitions=[partition])
    message = AlterPartitionRequest(broker_id=1, broker_epoch=broker_epoch, topics=[topic])
    return cast(WireRequest, SimpleNamespace(message=message, request_id=3))


# `kraft.testing`


@CASES("00000000000000000000.log")
def the_log_of_a_cluster_in_one_test_is_damaged() -> None:
    disk = MemoryDisk()
    disk.mkdir(disks.PARTITION)
    batches = bytearray(build_batch(0, 1, 0, [b"a"]) + build_batch(1, 1, 0, [b"b"]))
    batches[70] ^= 1
    disk.open(f"{disks.PARTITION}/00000000000000000000.log", create=True).append(bytes(batches))
    disks.batches_on(disk)
