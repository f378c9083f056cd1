"""Bugs that Apache Kafka's quorum had or has, by the numbers of its issue tracker: none of them is here.

Each test says what Kafka did. Those that its protocol invites are here, too, though they were never written up: what a
peer can say that ends a Kafka process.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from kraft.process.hosting import host_controller
from kraft.quorum.effects import StateChanged
from kraft.quorum.values import ListenerAddress, QuorumConfig
from kraft.replica.interface.options import SnapshotOptions
from metadata_log.errors import DirectoryError, MetadataLogError
from metadata_log.log.quorum_state_file import StoredElection, write_quorum_state
from metadata_log.log.retention import Retention
from metadata_log.log.snapshot import snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from metadata_log.serde import Message
from support.kraft.replica_net import CLUSTER_ID, DIRECTORY, START_MS, Net, formatted_disk
from support.kraft.simulated_quorum import (
    PARTITION,
    SCARCE,
    add,
    agree_on,
    alter,
    are_equal,
    codes,
    controller_of,
    describe,
    directory_id,
    dynamic_net,
    error_of,
    follower_of,
    goes_on,
    log_records,
    others,
    pieces_seen,
    quorum,
    remove,
    replace_disk,
    reports,
    snapshots,
    write,
)
from support.metadata_faults import FAULTS
from transport.protocol.errors import Error
from transport.protocol.messages import (
    BeginQuorumEpochResponse,
    FetchResponse,
    UpdateRaftVoterRequest,
)
from transport.protocol.messages.fetch import EpochEndOffset
from transport.protocol.messages.update_raft_voter import KRaftVersionFeature, Listener

LOG = f"{PARTITION}/00000000000000000000.log"


def epochs(net: Net) -> set[int]:
    return {replica.replica.core.epoch for replica in net.processes.values()}


def causes(net: Net, node: int) -> list[str]:
    """Why a node changed its state, each time."""
    return [effect.cause for at, effect in net.traces if at == node and isinstance(effect, StateChanged)]


# A majority that cannot be reached


def test_requests_with_the_leaders_own_id_do_not_count_for_check_quorum() -> None:
    """Ours: an update or a FetchSnapshot under the leader's own id was counted as heard from another voter."""
    net = dynamic_net(3)
    leader = net.elect()
    net.cut = {leader}
    for _ in range(40):
        if net.processes[leader].replica.core.is_leader:
            net.request(leader, update(net, leader, f"n{leader}"))
        net.advance(100)
    assert "check-quorum" in causes(net, leader)


def test_a_follower_that_only_downloads_a_snapshot_keeps_its_leader() -> None:
    """KAFKA-15489: what counts is a Fetch or a FetchSnapshot; a download takes longer than the leader's patience."""
    net = quorum()
    write(net, 200)
    leader, loading = net.leader, follower_of(net)
    replace_disk(net, loading)
    net.kill(next(node for node in net.processes if node != leader))
    net.changes["quorum"] = QuorumConfig(append_linger_ms=0, fetch_snapshot_max_bytes=100)
    net.start(loading)
    begun_ms = net.now_ms
    pieces = pieces_seen(net)
    while not snapshots(net, loading):
        assert net.now_ms < begun_ms + 60_000
        seen = len(pieces)
        while len(pieces) == seen and net.once():
            pass
        # A piece takes a while to arrive, and meanwhile nothing else happens.
        net.now_ms += 400
    assert net.now_ms - begun_ms > 6000
    assert net.leader == leader
    assert "check-quorum" not in causes(net, leader)
    net.until(lambda: are_equal(net))


def test_check_quorum_does_not_depose_the_only_voter() -> None:
    """KAFKA-16144: every three seconds the only voter resigned, and elected itself again."""
    net = Net(1)
    net.elect()
    before = epochs(net)
    net.advance(60_000)
    assert epochs(net) == before
    grown = dynamic_net(2)
    leader = grown.elect()
    [other] = others(grown, leader)
    assert error_of(grown, remove(other)) == Error.NONE
    before = epochs(grown)
    grown.kill(*others(grown, leader))
    grown.advance(60_000)
    assert epochs(grown) == before


def test_a_returning_node_never_raises_the_epoch() -> None:
    """KIP-996: a node that was cut off came back with a higher epoch of its own, and deposed a good leader."""
    net = Net()
    leader = net.elect()
    before = epochs(net)
    isolated = others(net, leader)[0]
    for _ in range(3):
        net.cut = {isolated}
        net.advance(20_000)
        assert net.processes[isolated].replica.core.state_name == "Prospective"
        net.cut = set()
        net.advance(3000)
        assert (net.leader, epochs(net)) == (leader, before)
    net.unreachable = {(isolated, f"n{leader}")}
    net.advance(20_000)
    assert (net.leader, epochs(net)) == (leader, before), "nor does one that only the leader does not hear"


# Observers


def observed() -> tuple[Net, int, int]:
    """Three voters and the observer 4 that follows them: the net, the leader, the observer."""
    net = dynamic_net(3, joining=1)
    leader = net.elect()
    net.until(lambda: net.processes[4].replica.core.log.high_watermark > 0)
    return net, leader, 4


def catches_up(net: Net, node: int, value: bytes) -> None:
    net.submit(net.leader, value)
    net.until(lambda: net.values_of(node)[-1:] == [value])


def test_an_observer_returns_to_a_reachable_leader() -> None:
    """KAFKA-19354: after its fetch timeout the observer asked the bootstrap servers for ever, which only named the
    leader again.
    """
    net, leader, observer = observed()
    net.unreachable = {(observer, f"n{leader}")}
    net.advance(10_000)
    net.unreachable = set()
    catches_up(net, observer, b"heard again")
    assert net.leader == leader


def test_an_observer_follows_a_leader_that_it_reaches_only_as_a_bootstrap_server() -> None:
    """KAFKA-20514: where the advertised address of the leader leads nowhere, the observer can keep asking there."""
    net, leader, observer = observed()
    net.kill(observer)
    net.changes["bootstrap"] = tuple(ListenerAddress("CONTROLLER", f"b{node}", 9093) for node in (1, 2, 3))
    net.unreachable = {(observer, f"n{node}") for node in (1, 2, 3)}
    net.start(observer)
    catches_up(net, observer, b"by the other address")
    net.cut = {leader}
    net.until(lambda: net.leader not in (0, leader))
    catches_up(net, observer, b"and again")


# Changes of the voters


def update(net: Net, node: int, host: str) -> UpdateRaftVoterRequest:
    """A voter tells where it listens."""
    return UpdateRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        current_leader_epoch=net.processes[net.leader].replica.core.epoch,
        voter_id=node,
        voter_directory_id=directory_id(node),
        listeners=[Listener("CONTROLLER", host, 9093)],
        kraft_version_feature=KRaftVersionFeature(0, 1),
    )


def test_an_update_waits_for_an_uncommitted_change_of_a_timed_out_caller() -> None:
    """KAFKA-20740: a removal timed out, its record was in the log, and an update wrote a second uncommitted set."""
    net = dynamic_net(3)
    leader = net.elect()
    first, second = others(net, leader)
    net.unreachable = {(node, f"n{leader}") for node in (first, second)}
    assert error_of(net, remove(first)) == Error.REQUEST_TIMED_OUT
    assert net.leader == leader
    sets = net.processes[leader].replica.core.history.sets
    assert error_of(net, update(net, second, "elsewhere")) == Error.REQUEST_TIMED_OUT
    assert error_of(net, add(net, 9)) == Error.REQUEST_TIMED_OUT
    assert net.processes[leader].replica.core.history.sets == sets


def test_first_records_that_were_lost_are_written_again_by_the_same_controller() -> None:
    """KAFKA-20839: a controller that lost the race of the first leaders took the log for one with records, and its
    cluster stayed at the lowest metadata.version.

    Nobody gets the first records of three leaders, and each of these is cut off. Then one of them leads again, with a
    log in which no such record was ever committed.
    """
    net = Net(3, application=host_controller)
    net.on_the_way = without_data
    led: list[int] = []
    while len(led) < 4:
        net.until(lambda: net.leader not in (0, *led[-1:]) and net.processes[net.leader].replica.is_active)
        led.append(net.leader)
        assert any(isinstance(one, FeatureLevelRecord) for _, one in log_records(net, net.leader))
        assert {version_of(net, node) for node in net.processes} == {None}
        net.cut = {net.leader}
    assert len(set(led)) < len(led), "none leads for the second time"
    net.cut, net.on_the_way = set(), lambda node, answer: answer
    net.until(lambda: {version_of(net, node) for node in net.processes} == {30})
    net.until(lambda: are_equal(net))
    assert codes(net.ask(net.leader, alter(("interval.ms", 0, "1000")))) == [Error.NONE]


def without_data(node: int, answer: Message) -> Message:
    """An error in place of fetched data records: control records arrive."""
    if isinstance(answer, FetchResponse) and answer.responses:
        fetched = bytes(answer.responses[0].partitions[0].records or b"")
        if not all(batch.is_control for batch in scan(fetched)):
            return FetchResponse(error_code=Error.REQUEST_TIMED_OUT)
    return answer


def version_of(net: Net, node: int) -> int | None:
    """The metadata.version that a node knows to be committed."""
    return controller_of(net, node).history.committed.features.metadata_version


def test_a_removed_voter_answers_begin_quorum_epoch() -> None:
    """Kafka 4.3.1: the leader's process ended with "Unexpected acknowledgement from non-voter"."""
    net = dynamic_net(3)
    leader = net.elect()
    gone = others(net, leader)[0]
    asked: list[int] = []

    def remove_before_it_arrives(sender: int, answer: Message) -> Message:
        if sender == gone and isinstance(answer, BeginQuorumEpochResponse) and not asked:
            asked.append(net.request(leader, remove(gone)))
        return answer

    net.on_the_way = remove_before_it_arrives
    net.unreachable = {(gone, f"n{leader}")}
    net.until(lambda: bool(asked) and asked[0] in net.answers)
    assert gone not in net.processes[leader].replica.core.voters.ids
    net.unreachable = set()
    goes_on(net)
    assert net.leader == leader


def test_an_added_voter_is_described_with_its_address() -> None:
    """KAFKA-17604: what had been fetched as an observer was kept, and the address was not."""
    net = dynamic_net(1, joining=1)
    net.elect()
    net.advance(1000)
    assert error_of(net, add(net, 2)) == Error.NONE
    agree_on(net, 1, 2)
    nodes = {node.node_id: node.listeners[0].host for node in describe(net).nodes}
    assert nodes == {1: "n1", 2: "n2"}


# Snapshots and the log


def test_a_log_that_begins_above_offset_0_needs_its_snapshot() -> None:
    """KAFKA-14240: the controller began with what was left, as if there had never been anything before."""
    net = quorum(SCARCE, segment_bytes=2000, max_idle_interval_ms=0)
    write(net, 60)
    net.advance(120_000)
    node = follower_of(net)
    assert net.processes[node].replica.core.log.start_offset > 0
    net.kill(node)
    disk = net.disks[node]
    for snapshot in snapshots(net, node):
        disk.remove(f"{PARTITION}/{snapshot_name(snapshot)}")
    left = disk.list(PARTITION)
    with pytest.raises(DirectoryError, match="no snapshot covers what came before") as refused:
        net.start(node)
    assert refused.value.hint
    assert disk.list(PARTITION) == left, "what is refused is left alone"


def test_records_without_a_snapshot_are_not_removed_by_retention() -> None:
    """KAFKA-14238: segments went by age and size, though the newest snapshot ended before them."""
    forgetful = SnapshotOptions(max_bytes=1500, retention=Retention(max_bytes=1, max_ms=1))
    net = quorum(forgetful, segment_bytes=500, max_idle_interval_ms=0)
    write(net, 60)
    net.advance(200_000)
    for node, replica in net.processes.items():
        newest = snapshots(net, node)[-1]
        assert replica.replica.log.start_offset == newest.offset < replica.replica.core.log.end_offset
        assert replica.replica.log.read(newest.offset, 1)
    node = follower_of(net)
    replace_disk(net, node)
    net.start(node)
    net.until(lambda: are_equal(net))


def disk_with(*batches: Sequence[Message]) -> MemoryDisk:
    """The disk of the only voter, with these records in its log."""
    disk = formatted_disk(1)
    disk.mkdir(PARTITION)
    file = disk.open(LOG, create=True)
    offset = 0
    versions: dict[type[Message], int] = {}
    for batch in batches:
        values = [encode_record(one, versions.get(type(one), 0)) for one in batch]
        file.append(build_batch(offset, 1, START_MS, values))
        offset += len(batch)
    file.fsync()
    file.close()
    write_quorum_state(disk, PARTITION, StoredElection(leader_epoch=1))
    for directory in ("", DIRECTORY, PARTITION):
        disk.fsync_dir(directory)
    return disk


METADATA_VERSION = FeatureLevelRecord(name="metadata.version", feature_level=30)


def test_an_incomplete_image_becomes_no_snapshot() -> None:
    """KAFKA-14203: a record that could not be applied was skipped, the snapshot then lacked it for good, and the log
    was cut. Here a node stops that cannot apply what is committed.
    """
    disk = disk_with([METADATA_VERSION, *FAULTS[0].log], *([NoOpRecord()] * 50 for _ in range(10)))
    with pytest.raises(MetadataLogError, match=FAULTS[0].words):
        Net(1, application=host_controller, disks={1: disk}, snapshots=SnapshotOptions(max_bytes=100)).elect()
    assert not any("checkpoint" in name for name in disk.list(PARTITION) if "epoch" not in name)
    assert disk.read(LOG)


def config(number: int) -> ConfigRecord:
    return ConfigRecord(resource_type=16, resource_name=f"s{number}", name="interval.ms", value="1000")


def test_a_snapshot_ends_where_a_batch_ends_and_outside_of_transactions() -> None:
    """KAFKA-17713: a snapshot ended at the begin of a transaction, within a batch; its followers could not fetch on."""
    disk = disk_with(
        [METADATA_VERSION, *(config(number) for number in range(50)), BeginTransactionRecord()],
        [config(number) for number in range(50, 100)],
        [EndTransactionRecord(), config(100)],
    )
    net = Net(1, application=host_controller, disks={1: disk}, snapshots=SnapshotOptions(max_bytes=100))
    net.elect()
    net.advance(1000)
    ends = {batch.next_offset for batch in scan(net.log_of(1))}
    taken = snapshots(net, 1)
    assert taken
    assert {one.offset for one in taken} <= ends
    assert taken[0].offset >= 104, "the transaction is over"


def test_an_installed_snapshot_removes_older_ones() -> None:
    """Ours: after a power failure between the two, the older snapshot stayed. As leader the node then sent a follower
    with the same log start to a snapshot that the follower had, again and again.
    """
    net = quorum(max_idle_interval_ms=0)
    write(net, 30)
    leader, node = net.leader, follower_of(net)
    assert snapshots(net, node)
    net.kill(node)
    net.kill(leader)
    net.start(leader)
    net.elect()
    write(net, 60, first=100)
    newest = snapshots(net, net.leader)[-1]
    assert newest.epoch > snapshots(net, node)[-1].epoch
    # The node has a snapshot of its own, and the leader's, and its log ends before that one.
    disk = net.disks[node]
    content = net.disks[net.leader].read(f"{PARTITION}/{snapshot_name(newest)}")
    file = disk.open(f"{PARTITION}/{snapshot_name(newest)}", create=True)
    file.append(content)
    file.fsync()
    file.close()
    disk.fsync_dir(PARTITION)
    net.start(node)
    assert snapshots(net, node) == (newest,)
    assert net.processes[node].replica.core.log.start_offset == newest.offset
    net.until(lambda: are_equal(net))


# What ends a process of Kafka's, and must not end ours


def test_a_peer_that_answers_invalid_request_is_reported() -> None:
    """INVALID_REQUEST in the answer to a BeginQuorumEpoch ended the leader's process."""
    net = Net()

    def refuse(node: int, answer: Message) -> Message:
        if not isinstance(answer, BeginQuorumEpochResponse) or node != 3 or not answer.topics:
            return answer
        refused = structs.replace(answer.topics[0].partitions[0], error_code=Error.INVALID_REQUEST)
        return structs.replace(answer, topics=[structs.replace(answer.topics[0], partitions=[refused])])

    net.on_the_way = refuse
    leader = net.elect()
    if leader == 3:
        net.kill(3)
        leader = net.elect()
        net.start(3)
    net.cut = {3}
    net.advance(2000)
    net.cut = set()
    net.unreachable = {(3, f"n{leader}")}
    net.until(lambda: "it calls our request invalid" in reports(net, leader))
    net.unreachable = set()
    goes_on(net)


def test_committed_records_are_never_truncated_at_a_leaders_request() -> None:
    """KAFKA-12460: a follower truncated committed records at the leader's request; now its process ends."""
    net = Net()
    leader = net.elect()
    net.submit(leader, b"kept")
    net.advance(600)
    node = others(net, leader)[0]
    lies: list[int] = []

    def lie(sender: int, answer: Message) -> Message:
        if lies or not isinstance(answer, FetchResponse):
            return answer
        lies.append(sender)
        part = answer.responses[0].partitions[0]
        diverging = EpochEndOffset(epoch=part.current_leader.leader_epoch, end_offset=1)
        changed = structs.replace(part, diverging_epoch=diverging)
        return structs.replace(answer, responses=[structs.replace(answer.responses[0], partitions=[changed])])

    net.on_the_way = lie
    net.advance(600)
    assert lies
    assert any("is committed" in what for node in net.processes for what in reports(net, node))
    assert net.values_of(node) == [b"kept"]
    goes_on(net)
