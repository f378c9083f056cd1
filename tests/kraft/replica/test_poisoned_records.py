"""A leader that sends what no leader writes: nothing of it is appended, it is reported, and asked again later.

One such batch, committed by a forged high watermark, would end a node, and each of its starts after that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from crashing_replica import Node, leader_change
from kraft.limits import BATCH_BYTES
from kraft.process.hosting import host_controller, host_raw_log
from kraft.process.opening import open_process
from kraft.state_machine.raw_log import RawLog
from metadata_log.compression import Compression
from metadata_log.errors import CorruptBatch, MetadataLogError
from metadata_log.log.segment import scan_file
from metadata_log.log.snapshot import read_snapshot, snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import build_batch, build_control_batch, write_batch
from metadata_log.records.control import (
    Endpoint,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersRecordVoter,
)
from metadata_log.records.frame import encode_control, encode_record
from metadata_log.records.metadata import FeatureLevelRecord, NoOpRecord
from metadata_log.records.record import Record, records
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
from support.kraft.replica_net import START_MS, Net, formatted_disk, options, voter_set
from support.kraft.simulated_quorum import PARTITION, SMALL_PIECES, quorum, replace_disk, snapshots, write
from transport.protocol.messages import FetchResponse, FetchSnapshotRequest
from transport.protocol.messages.fetch import SnapshotId

NOTHING = encode_record(NoOpRecord(), 0)
LOG = f"{PARTITION}/00000000000000000000.log"


def control(*contents: Message | tuple[int, bytes], epoch: int = 1, offset: int = 1) -> bytes:
    """A control batch of these records, some of them given as type and body."""
    encoded = [one if isinstance(one, tuple) else encode_control(one)[::2] for one in contents]
    return build_control_batch(offset, epoch, START_MS, encoded)


def voters(*ids: int) -> VotersRecord:
    return VotersRecord(voters=tuple(voter(one) for one in ids))


def voter(node_id: int, *, port: int | None = 9093) -> VotersRecordVoter:
    return VotersRecordVoter(
        voter_id=node_id,
        voter_directory_id=Uuid(bytes(15) + bytes([abs(node_id)])),
        endpoints=() if port is None else (Endpoint("CONTROLLER", f"n{node_id}", port),),
    )


def record(offset: int, value: bytes | None = NOTHING) -> Record:
    return Record(offset, START_MS, 0, None, value)


def data(*values: bytes) -> bytes:
    return build_batch(1, 1, START_MS, values)


FORGED: dict[str, tuple[bytes, str]] = {
    "garbage": (data(b"\xff\xff\xff\xff"), "too large|ends|frame"),
    "an empty value": (data(NOTHING, b""), "end"),
    "another frame version": (data(b"\x02" + NOTHING[1:]), "frame version 2"),
    "an unknown type": (data(b"\x01\x7e\x00"), "record type 126"),
    "a version that cannot be read": (data(b"\x01\x02\x63\xff\xff"), "cannot be read"),
    "bytes behind a record": (data(NOTHING + b"\x00\x00"), "trailing|behind"),
    "no value": (write_batch([record(1, None)], epoch=1), "has no value"),
    "packed": (write_batch([record(1)], epoch=1, compression=Compression.GZIP), "compressed"),
    "a transaction": (write_batch([record(1)], epoch=1, transactional=True), "attributes"),
    "a gap between records": (write_batch([record(1), record(3)], epoch=1), "2 records ends 2 offsets after"),
    "one offset twice": (write_batch([record(1), record(1), record(3)], epoch=1), "offset 1, where offset 2"),
    "too large": (data(bytes(BATCH_BYTES)), "larger than any"),
    "a snapshot's header": (control(SnapshotHeaderRecord()), "type 3"),
    "a snapshot's footer": (control(SnapshotFooterRecord()), "type 4"),
    "an aborted transaction": (control((0, b"")), "type 0"),
    "an unknown control record": (control((77, b"\x00\x00")), "type 77"),
    "a damaged control record": (control((5, b"\x00")), "its version"),
    "the leader once more": (control(LeaderChangeMessage(leader_id=2)), "a second LeaderChange"),
    "an epoch without its leader": (build_batch(1, 2, START_MS, [NOTHING]), "epoch 2 begins without LeaderChange"),
    "an epoch with its voters first": (control(voters(1), epoch=2), "epoch 2 begins without LeaderChange"),
    "another leader": (control(LeaderChangeMessage(leader_id=3), epoch=2), "led by 2, and LeaderChange .* says 3"),
    "a leader behind voters": (
        control(LeaderChangeMessage(leader_id=2), LeaderChangeMessage(leader_id=2), epoch=2),
        "LeaderChange is record 1",
    ),
    "a level of kraft.version that nothing has": (control(KRaftVersionRecord(kraft_version=9)), "kraft.version is 9"),
    "no voters": (control(KRaftVersionRecord(kraft_version=1), voters()), "a voter set is empty"),
    "a voter twice": (control(KRaftVersionRecord(kraft_version=1), voters(1, 1)), "appears twice"),
    "a voter without an address": (
        control(KRaftVersionRecord(kraft_version=1), VotersRecord(voters=(voter(1), voter(2, port=None)))),
        "voter 2 in a voter set cannot be reached",
    ),
    "a voter that is none": (control(KRaftVersionRecord(kraft_version=1), voters(1, -7)), "voter -7 in a voter set"),
    "all voters at once": (
        control(KRaftVersionRecord(kraft_version=1), voters(1, 2, 3), voters(2, 7, 8)),
        "has lost 2 voters at once, and got 2 others",
    ),
}


def follower() -> Node:
    """Node 1, which follows 2 in epoch 2, and has one record of epoch 1."""
    node = Node(formatted_disk(1), application=host_controller)
    node.follow(2, 1)
    node.fetched(2, 1, records=leader_change(0, 1, 2), high_watermark=1)
    node.follow(2, 2)
    return node


OF_A_LATER_RELEASE = {
    *("another frame version", "an unknown type", "a version that cannot be read"),
    "a level of kraft.version that nothing has",
}


@pytest.mark.parametrize("what", FORGED)
def test_fetched_records_that_no_leader_writes_are_not_appended(what: str) -> None:
    """The follower goes on, asks again later, and takes what is right from the next leader; it starts again, too."""
    forged, why = FORGED[what]
    node = follower()
    before = node.disk.read(LOG)
    requests = len(node.sent)
    node.fetched(2, 2, records=forged, high_watermark=100)
    assert node.disk.read(LOG) == before
    assert len(node.reports) == 1
    said = "this node is behind it" if what in OF_A_LATER_RELEASE else "it sent damaged records"
    assert f"{said}: from byte 0 on" in node.reports[0]
    assert re.search(why, node.reports[0]), node.reports[0]
    assert 2 not in [one.target.node_id for one in node.sent[requests:]], "the leader is asked later, not at once"
    node.now_ms += 100
    node.work()
    assert node.last_fetch[1] == 1
    node.fetched(2, 2, records=leader_change(1, 2, 2) + build_batch(2, 2, START_MS, [NOTHING]), high_watermark=3)
    node.work()
    assert node.replica.replica.status().applied_offset == 3
    node.replica.close()
    assert Node(node.disk, application=host_controller).replica.replica.core.log.end_offset == 3


def test_batches_before_a_forged_one_are_appended() -> None:
    node = follower()
    good = leader_change(1, 2, 2)
    node.fetched(2, 2, records=good + build_batch(2, 2, START_MS, [b"\xff"]), high_watermark=1)
    assert node.replica.replica.core.log.end_offset == 2
    assert "from byte" in node.reports[0]


def test_fetched_voter_sets_may_change_by_one_voter() -> None:
    """As a leader writes them, also several in one answer; and all at once is refused against what the log has."""
    node = follower()
    first = control(LeaderChangeMessage(leader_id=2), KRaftVersionRecord(kraft_version=1), voters(1, 2, 3), epoch=2)
    more = control(voters(1, 2), epoch=2, offset=4) + control(voters(1, 2, 4), epoch=2, offset=5)
    node.fetched(2, 2, records=first + more, high_watermark=1)
    assert node.reports == []
    assert node.replica.replica.core.log.end_offset == 6
    node.fetched(2, 2, records=control(voters(7, 8, 9), epoch=2, offset=6), high_watermark=1)
    assert node.replica.replica.core.log.end_offset == 6
    assert "has lost 3 voters at once" in node.reports[0]


def test_a_raw_log_accepts_any_bytes() -> None:
    node = Node(formatted_disk(1))
    node.follow(2, 1)
    node.fetched(2, 1, records=leader_change(0, 1, 2) + data(b"\xff\xff", b""), high_watermark=3)
    assert node.replica.replica.core.log.end_offset == 3
    assert node.reports == []


def test_a_forged_leader_does_not_stop_a_quorum() -> None:
    """The whole attack: a higher epoch that names the attacker, and its batch in answer to each fetch."""
    net = Net(3, application=host_controller)
    leader = net.elect()
    victims = [node for node in net.processes if node != leader]
    poison = build_batch(net.processes[leader].replica.core.log.end_offset, 1, START_MS, [b"\xff\xff"])

    def poisoned(node: int, answer: Message) -> Message:
        if node != leader or not isinstance(answer, FetchResponse) or not answer.responses:
            return answer
        (topic,) = answer.responses
        part = replace(topic.partitions[0], records=poison, high_watermark=10**6)
        return replace(answer, responses=[replace(topic, partitions=[part])])

    net.on_the_way = poisoned
    net.advance(10_000)
    net.on_the_way = lambda node, answer: answer
    net.until(lambda: net.leader != 0)
    net.advance(5_000)
    for node in victims:
        net.kill(node)
        net.start(node)
    net.elect()
    assert len(net.processes) == 3


# Snapshots


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda value: b"\xff\xff\xff\xff", "frame|too large|ends"),
        (lambda value: b"\x01\x7e\x00", "record type 126"),
    ],
    ids=["garbage", "an unknown type"],
)
def test_an_unreadable_snapshot_is_not_installed(change: Callable[[bytes], bytes], why: str) -> None:
    """Each CRC is right, and one record is wrong. The node stays as it was, reports the leader, and lives."""
    net = quorum()
    write(net, 60)
    net.advance(2000)
    leader = net.leader
    newest = snapshots(net, leader)[-1]
    path = f"{PARTITION}/{snapshot_name(newest)}"
    forged = b"".join(forged_batches(net.disks[leader], path, change))
    good = net.disks[leader].read(path)
    disk = net.disks[leader]
    disk.remove(path)
    file = disk.open(path, create=True)
    file.append(forged)
    file.close()
    node = next(one for one in net.processes if one != leader)
    replace_disk(net, node)
    net.start(node)
    net.advance(3000)
    said = [effect.what for at, effect in net.traces if at == node and hasattr(effect, "what")]
    assert any("is damaged" in what and re.search(why, what) for what in said), said
    assert snapshots(net, node) == ()
    disk.remove(path)
    file = disk.open(path, create=True)
    file.append(good)
    file.close()
    net.until(lambda: snapshots(net, node) != (), 60_000)


def forged_batches(disk: MemoryDisk, path: str, change: Callable[[bytes], bytes]) -> list[bytes]:
    """A snapshot with another value in the middle of its first batch of data."""
    forged: list[Any] = []
    for batch in read_snapshot(disk, path):
        if batch.is_control or len(forged) != 1:
            forged.append(batch.data)
            continue
        values = [one.value or b"" for one in records(batch)]
        values[len(values) // 2] = change(values[len(values) // 2])
        forged.append(build_batch(batch.base_offset, batch.epoch, batch.base_timestamp, values))
    return forged


def test_a_raw_log_fetches_no_snapshot_of_something_else() -> None:
    """A node with one would end, and not start again."""
    net = Net(3, application=host_raw_log)
    leader = net.elect()
    node = next(one for one in net.processes if one != leader)
    files, application = net.processes[node].replica.storage.snapshots, net.processes[node].application
    assert isinstance(application, RawLog)
    files.begin(OffsetAndEpoch(epoch=1, offset=50), application.check)
    header = control(SnapshotHeaderRecord(), offset=0)
    footer = control(SnapshotFooterRecord(), offset=1)
    assert files.append(header + footer) is None
    checked = files.check(application.check_snapshot)
    assert checked.problem == "this is no snapshot of a raw log"


def test_a_snapshot_of_a_later_epoch_than_the_leaders_is_not_fetched() -> None:
    """With it the log would be ahead of quorum-state, and no start would take the directory."""
    node = follower()
    node.fetched(2, 2, snapshot_id=SnapshotId(epoch=9, end_offset=50))
    assert not any(isinstance(one.message, FetchSnapshotRequest) for one in node.sent)
    assert "it sends us to snapshot 50@9" in node.reports[0]
    node.replica.close()
    Node(node.disk, application=host_controller)
    other = follower()
    other.fetched(2, 2, snapshot_id=SnapshotId(epoch=2, end_offset=50))
    assert any(isinstance(one.message, FetchSnapshotRequest) for one in other.sent)


# Directories that are poisoned already


def poisoned_disk(bad: bytes) -> MemoryDisk:
    """A disk with a bad record of an earlier release, and good records before and after it."""
    node = Node(formatted_disk(1))
    node.follow(2, 1)
    good = [leader_change(0, 1, 2), build_batch(1, 1, START_MS, [NOTHING] * 3)]
    behind = build_batch(5, 1, START_MS, [NOTHING])
    node.fetched(2, 1, records=b"".join([*good, build_batch(4, 1, START_MS, [bad]), behind]), high_watermark=6)
    node.replica.close()
    return node.disk


@pytest.mark.parametrize("bad", [b"\xff\xff\xff\xff", b"", b"\x01\x7e\x00"])
def test_a_poisoned_directory_is_refused_with_file_offset_and_remedy(bad: bytes) -> None:
    disk = poisoned_disk(bad)
    (position,) = [one.position for one in scan_file(disk.open(LOG)) if one.base_offset == 4]
    with pytest.raises(CorruptBatch, match="a record in the batch of offset 4 cannot be read") as refused:
        Node(disk, application=host_controller)
    assert (refused.value.where, refused.value.position) == (LOG, position)
    assert "damaged-disk.md" in (refused.value.hint or "")
    # The directory was let go: a raw log may have it, for which these are values like any others.
    Node(disk)


def test_a_poisoned_snapshot_is_refused_with_its_file() -> None:
    net = quorum()
    write(net, 60)
    net.advance(2000)
    node = net.leader
    newest = snapshots(net, node)[-1]
    path = f"{PARTITION}/{snapshot_name(newest)}"
    disk = net.disks[node]
    forged = b"".join(forged_batches(disk, path, lambda value: b"\x01\x7e\x00"))
    net.kill(node)
    disk.remove(path)
    file = disk.open(path, create=True)
    file.append(forged)
    with pytest.raises(CorruptBatch, match=r"the snapshot cannot be read: .*record type 126") as refused:
        open_process(
            options=options(node, voter_set(3), quorum=SMALL_PIECES),
            disk=disk,
            rng=Random(1),
            application=host_controller,
            now_ms=net.now_ms,
        )
    assert refused.value.where == path
    assert "damaged-disk.md" in (refused.value.hint or "")


def test_a_follower_behind_a_later_level_ends_and_names_the_level() -> None:
    """The level comes before the first record that needs it: the node takes so much, and the commit ends it."""
    node = follower()
    level = encode_record(FeatureLevelRecord(name="metadata.version", feature_level=99), 0)
    known = leader_change(1, 2, 2) + build_batch(2, 2, START_MS, [level])
    batches = known + build_batch(3, 2, START_MS, [b"\x01\x63\x00"])
    with pytest.raises(MetadataLogError, match=r"the cluster uses metadata.version 99, and this software supports 7"):
        node.fetched(2, 2, records=batches, high_watermark=4)
