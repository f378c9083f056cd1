"""`check_history` over what real quorums left behind, and over the same with one promise broken."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from kraft.history_checker import History, check_history
from metadata_log.log.log_dir import META_PROPERTIES
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.batch_builder import build_batch, rebuild_batch
from metadata_log.records.control import LeaderChangeMessage, VotersRecord
from metadata_log.records.frame import decode_control, decode_record, encode_control, encode_record
from metadata_log.records.metadata import PartitionChangeRecord, RegisterBrokerRecord
from metadata_log.records.record import Record, records
from metadata_log.types import PARTITION_DIRECTORY
from support.real_data import archive

Files = dict[str, bytes]

CLUSTERS = {
    "static3": ("static3", "nodes/"),
    "dynamic3": ("clusters", "dynamic3/nodes/"),
    "failover": ("clusters", "failover/nodes/"),
    "old39": ("clusters", "old39/nodes/"),
}
FIRST_LOG = "00000000000000000000.log"


def nodes_of(cluster: str) -> Files:
    """The files of a real cluster's nodes, by the paths `/NODE/…`."""
    name, prefix = CLUSTERS[cluster]
    return {f"/{path[len(prefix) :]}": data for path, data in archive(name).items() if path.startswith(prefix)}


def check(files: Mapping[str, bytes], *names: str) -> History:
    disk = MemoryDisk()
    for path, content in files.items():
        disk.mkdir(path.rpartition("/")[0])
        disk.open(path, create=True).append(content)
    every = sorted({path.split("/")[1] for path in files if f"/{PARTITION_DIRECTORY}/" in path})
    return check_history(*(f"/{name}" for name in names or every), disk=disk)


def rules_broken(history: History) -> set[str]:
    return {finding.rule for finding in history.findings}


@pytest.mark.parametrize(
    ("cluster", "leaders", "compared", "changes"),
    [("static3", 15, 180, 3187), ("dynamic3", 7, 997, 0), ("failover", 4, 1382, 3128), ("old39", 5, 778, 334)],
)
def test_logs_of_real_quorums_satisfy_all_rules(cluster: str, leaders: int, compared: int, changes: int) -> None:
    """Killed nodes, changes of voters, an upgrade from 3.9: nothing in it contradicts the promises."""
    found = check(nodes_of(cluster))
    assert [str(finding) for finding in found.findings] == []
    assert (len(found.leaders), found.compared, found.changes) == (leaders, compared, changes)


def test_a_single_node_is_checked_for_the_rules_that_need_one_log() -> None:
    """Node 2 of static3 has only its last snapshot and what came after."""
    found = check(nodes_of("static3"), "c2")
    assert (found.is_legal, found.proven_end, found.compared) == (True, 5210, 0)
    assert check(nodes_of("failover"), "c2").changes == 3128


# One broken promise each


def _edited(files: Files, node: str, name: str, edit: Callable[[bytes], bytes]) -> None:
    path = f"/{node}/{name}"
    changed = edit(files[path])
    assert changed != files[path], path
    files[path] = changed


def _log_edited(files: Files, node: str, edit: Callable[[RecordBatch], bytes | None]) -> None:
    """Replace the first batch of a node's first segment for which `edit` has another."""
    segment = min(
        path for path in files if path.startswith(f"/{node}/{PARTITION_DIRECTORY}/") and path.endswith(".log")
    )
    content = files[segment]
    for batch in scan(content):
        changed = edit(batch)
        if changed is not None:
            files[segment] = content[: batch.position] + changed + content[batch.end_position :]
            return
    pytest.fail(f"no batch of {segment} can be edited so")


def _other_cluster(files: Files) -> None:
    _edited(files, "c2", META_PROPERTIES, lambda text: text.replace(b"cluster.id=", b"cluster.id=x"))


def _flipped_byte(files: Files) -> None:
    def flip(batch: RecordBatch) -> bytes | None:
        data = bytearray(batch.data)
        data[70] ^= 1
        return bytes(data) if batch.base_offset > 20 else None

    _log_edited(files, "c2", flip)


def _lost_beginning(files: Files) -> None:
    for path in [path for path in files if path.startswith("/c1/") and path.endswith(".checkpoint")]:
        del files[path]
    _starts_late(files, "c1")


def _starts_late(files: Files, node: str) -> None:
    """Let the log of a node begin at its third batch."""
    path = f"/{node}/{PARTITION_DIRECTORY}/{FIRST_LOG}"
    content = files.pop(path)
    third = list(scan(content))[2]
    files[path.replace(FIRST_LOG, f"{third.base_offset:020}.log")] = content[third.position :]


def _misnamed_snapshot(files: Files) -> None:
    path = next(path for path in files if path.startswith("/c1/") and path.endswith("0000000004.checkpoint"))
    files[path.replace("0000000004.checkpoint", "0000000005.checkpoint")] = files.pop(path)


def _other_epochs(files: Files) -> None:
    def later(text: bytes) -> bytes:
        *head, last = text.splitlines()
        epoch, offset = last.split()
        return b"\n".join([*head, b"%d %d" % (int(epoch), int(offset) + 1)]) + b"\n"

    _edited(files, "c1", f"{PARTITION_DIRECTORY}/leader-epoch-checkpoint", later)


def _old_promise(files: Files) -> None:
    _quorum_state(files, "c1", leaderEpoch=1, leaderId=1)


def _quorum_state(files: Files, node: str, **fields: int) -> None:
    def edit(text: bytes) -> bytes:
        return json.dumps(json.loads(text) | fields).encode()

    _edited(files, node, f"{PARTITION_DIRECTORY}/quorum-state", edit)


def _two_leaders(files: Files) -> None:
    state = json.loads(files[f"/c1/{PARTITION_DIRECTORY}/quorum-state"])
    other = next(one for one in (1, 2, 3) if one != state["leaderId"])
    _quorum_state(files, "c2", leaderEpoch=state["leaderEpoch"], leaderId=state["leaderId"], votedId=-1)
    _quorum_state(files, "c1", leaderId=other)


def _leader_change_as(
    edit: Callable[[LeaderChangeMessage], LeaderChangeMessage],
) -> Callable[[RecordBatch], bytes | None]:
    def change(batch: RecordBatch) -> bytes | None:
        if not batch.is_control or batch.base_offset == 0:
            return None
        (record,) = records(batch)
        found = decode_control(record.key or b"", record.value or b"")[1]
        if not isinstance(found, LeaderChangeMessage):
            return None
        _, key, value = encode_control(edit(found))
        return rebuild_batch(batch, [replace(record, key=key, value=value)])

    return change


def _elected_by_one(files: Files) -> None:
    edit = _leader_change_as(lambda change: replace(change, granting_voters=change.granting_voters[:1]))
    for node in ("c1", "c2", "c3"):
        _log_edited(files, node, edit)


def _led_without_a_word(files: Files) -> None:
    def with_data(batch: RecordBatch) -> bytes | None:
        if _leader_change_as(lambda change: change)(batch) is None:
            return None
        return build_batch(batch.base_offset, batch.epoch, batch.max_timestamp, [b"\x01\x14\x00\x00"])

    for node in ("c1", "c2", "c3"):
        _log_edited(files, node, with_data)


def _other_batch(files: Files) -> None:
    def at_another_time(batch: RecordBatch) -> bytes | None:
        if batch.is_control or batch.base_offset < 30 or batch.record_count > 1:
            return None
        return rebuild_batch(replace(batch, base_timestamp=batch.base_timestamp + 1), records(batch))

    _log_edited(files, "c2", at_another_time)


def _lost_by_most(files: Files) -> None:
    """Two of three voters have only the first batches, and no snapshot."""
    for node in ("c2", "c3"):
        for path in [path for path in files if path.startswith(f"/{node}/{PARTITION_DIRECTORY}/")]:
            if path.endswith(FIRST_LOG):
                files[path] = files[path][: list(scan(files[path]))[5].end_position]
            elif not path.endswith("quorum-state"):
                del files[path]


def _voters_changed_at_once(files: Files) -> None:
    def without_most(batch: RecordBatch) -> bytes | None:
        if not batch.is_control or batch.base_offset < 20:
            return None
        changed: list[Record] = []
        for record in records(batch):
            found = decode_control(record.key or b"", record.value or b"")[1]
            if isinstance(found, VotersRecord) and len(found.voters) > 2:
                _, key, value = encode_control(replace(found, voters=found.voters[:1]))
                changed.append(replace(record, key=key, value=value))
        return rebuild_batch(batch, changed) if len(changed) == batch.record_count else None

    for node in ("c1", "c2", "c3"):
        _log_edited(files, node, without_most)


def _led_from_outside(files: Files) -> None:
    def elect_another(batch: RecordBatch) -> bytes | None:
        if batch.is_control or batch.base_offset < 100:
            return None
        changed, has_changed = [], False
        for record in records(batch):
            found = decode_record(record.value or b"")
            if isinstance(found.record, PartitionChangeRecord) and found.record.isr and not has_changed:
                has_changed = True
                value = encode_record(replace(found.record, leader=999), found.version)
                changed.append(replace(record, value=value))
            else:
                changed.append(record)
        return rebuild_batch(batch, changed) if has_changed else None

    for node in sorted({path.split("/")[1] for path in files}):
        _log_edited(files, node, elect_another)


def _other_snapshot(files: Files) -> None:
    path = next(path for path in sorted(files) if path.startswith("/c1/") and path.endswith("4.checkpoint"))
    content = files[path]
    for batch in scan(content):
        changed = [
            replace(record, value=encode_record(replace(found.record, broker_epoch=7), found.version))
            if isinstance((found := decode_record(record.value or b"")).record, RegisterBrokerRecord)
            else record
            for record in (() if batch.is_control else records(batch))
        ]
        if changed:
            files[path] = content[: batch.position] + rebuild_batch(batch, changed) + content[batch.end_position :]
            return


@pytest.mark.parametrize(
    ("breaks", "cluster", "rule"),
    [
        (_other_cluster, "static3", "OneCluster"),
        (_flipped_byte, "failover", "Sound"),
        (_lost_beginning, "failover", "SnapshotAtLogStart"),
        (_misnamed_snapshot, "old39", "SnapshotAtLogStart"),
        (_other_epochs, "static3", "EpochsAgree"),
        (_old_promise, "static3", "MonotonicEpoch"),
        (_two_leaders, "static3", "SingleLeader"),
        (_elected_by_one, "failover", "ElectedByMajority"),
        (_led_without_a_word, "failover", "LeaderChangeFirst"),
        (_other_batch, "failover", "NoLogDivergence"),
        (_lost_by_most, "old39", "MajorityReachedHighWatermark"),
        (_voters_changed_at_once, "dynamic3", "OneVoterAtATime"),
        (_led_from_outside, "failover", "Metadata"),
        (_other_snapshot, "old39", "ConsistentCommittedData"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_each_violation_is_found_by_its_rule(breaks: Callable[[Files], None], cluster: str, rule: str) -> None:
    files = nodes_of(cluster)
    breaks(files)
    found = check(files)
    assert rule in rules_broken(found), found.findings
    assert not found.is_legal


def test_two_copies_of_one_replica_count_once() -> None:
    files = nodes_of("static3")
    files |= {path.replace("/c1/", "/copy/"): data for path, data in files.items() if path.startswith("/c1/")}
    assert rules_broken(check(files)) == {"OneCluster"}
