"""The state of the attacked node as the attacker knows it, and the values in hostile frames; record batches for hostile
responses: damaged ones, ones that no follower may append, and plausible forgeries.
"""

from __future__ import annotations

from random import Random
from struct import pack
from typing import Any, Final

from msgspec import Struct

from kraft.invariants.observation import View
from kraft.quorum.values import ReplicaKey
from metadata_log.records.batch import HEADER_BYTES
from metadata_log.records.batch_builder import build_batch, build_control_batch, with_checksum
from metadata_log.records.control import KRaftVersionRecord, VotersRecord, VotersRecordVoter
from metadata_log.records.frame import encode_control
from metadata_log.serde import Message
from metadata_log.types import METADATA_TOPIC, NO_NODE, Uuid

FOREIGN_CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAkrZ"
STRANGER_ID: Final = 4711
"""A node id that no simulated node has."""
INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
LAST_EPOCHS: Final = (INT32_MAX, INT32_MAX - 1)
"""Epochs that leave room for no further epoch, or for one, in an int32."""
NEGATIVE_EPOCHS: Final = (-1, -2, -(2**31))
NEGATIVE_IDS: Final = (-1, -2, -7, -(2**31))
NEGATIVE_OFFSETS: Final = (-1, -2, -(2**63))
HOSTS: Final = ("", "evil", "n", "n0", "n4711", "[::1", "a" * 300, "n1\n")
"""Host names that no simulated node has."""


class AttackTarget(Struct, frozen=True):
    """The node that receives a frame, as it is at that moment."""

    key: ReplicaKey
    view: View
    voters: tuple[ReplicaKey, ...]
    node_ids: tuple[int, ...]

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """The ids of the voters."""
        return tuple(key.id for key in self.voters)

    @property
    def next_epoch(self) -> int:
        """The latest epoch to which a frame may move the node without harm.

        An observer in a later epoch than the leader's is stuck until there is another leader, as in Kafka.
        """
        return self.view.epoch + any(key.matches(self.key) for key in self.voters)

    @property
    def leader_id(self) -> int:
        """The leader that the node knows, or -1."""
        return self.view.leader.leader_id

    def is_led_by_another(self, node_id: int) -> bool:
        """Whether the node knows a leader of its epoch, and that leader is not `node_id`."""
        return self.leader_id not in (NO_NODE, node_id)


class Hostile(Struct, frozen=True):
    """One hostile message. `claims` is the voter id that the sender gives as its own, if any."""

    message: Message
    what: str
    claims: int | None = None


def any_id(rng: Random, target: AttackTarget) -> int:
    """An id of a node, of no node, or a negative one."""
    return rng.choice((*target.node_ids, STRANGER_ID, *NEGATIVE_IDS))


def some_id(rng: Random, target: AttackTarget) -> int:
    """An id of a node or of no node."""
    return rng.choice((*target.node_ids, STRANGER_ID))


def any_directory(rng: Random, target: AttackTarget) -> Uuid:
    """The directory of a voter, no directory, or a directory that does not exist."""
    known = tuple(key.directory_id for key in target.voters)
    return rng.choice((*known, target.key.directory_id, Uuid.ZERO, Uuid(rng.randbytes(16))))


def any_offset(rng: Random, target: AttackTarget) -> int:
    """An offset: of the log, beyond its end, or no offset at all."""
    view = target.view
    known = view.high_watermark, view.log_start_offset, view.log_end_offset, view.log_end_offset + 1
    return rng.choice((0, 1, *known, INT64_MAX, *NEGATIVE_OFFSETS))


def any_topics(rng: Random, topic: Message, name: str) -> list[Message]:
    """Topics that are not the one metadata partition: none, twice the same, another one."""
    return rng.choice(([], [topic, topic], [_renamed(topic, name), topic], [_renamed(topic, name)]))


def _renamed(topic: Message, name: str) -> Message:
    fields: dict[str, Any] = {one: getattr(topic, one) for one in topic.__struct_fields__}
    fields[name] = Uuid.ZERO if isinstance(fields[name], Uuid) else f"{METADATA_TOPIC}x"
    return type(topic)(**fields)


_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_LAST_DELTA_AT: Final = 23
_COUNT_AT: Final = 57
_CODECS: Final = (1, 2, 3, 4, 5, 7)
_CONTROL: Final = 0x20
TIMESTAMP_MS: Final = 1_700_000_000_000


def refusable_records(rng: Random, target: AttackTarget) -> tuple[bytes, str]:
    """Bytes from which a follower may append nothing."""
    view = target.view
    offset, epoch = view.log_end_offset, view.epoch
    sound = build_batch(offset, epoch, TIMESTAMP_MS, [b"forged"] * rng.choice((1, 1, 3)))
    match rng.randrange(11):
        case 0:
            return rng.randbytes(rng.choice((1, 11, 60, 61, 62, 500))), "garbage"
        case 1:
            place = rng.randrange(_CRC_AT, len(sound))
            flipped = sound[:place] + bytes((sound[place] ^ 1 << rng.randrange(8),)) + sound[place + 1 :]
            return flipped, f"a batch with a flipped bit at {place}"
        case 2:
            shift = rng.choice((-1, 1, 3, 1 << 40, -offset - 5))
            return build_batch(offset + shift, epoch, TIMESTAMP_MS, [b"forged"]), f"a batch {shift} offsets off"
        case 3:
            garbage = rng.randbytes(len(sound) - HEADER_BYTES)
            return with_checksum(
                sound[:HEADER_BYTES] + garbage
            ), "records that cannot be decoded, with a valid checksum"
        case 4:
            codec = rng.choice(_CODECS)
            return _with(sound, _ATTRIBUTES_AT, pack(">h", codec)), f"a batch with the codec {codec}"
        case 5:
            delta = rng.choice((-1, -2, -(2**31), INT32_MAX, 77))
            return _with(sound, _LAST_DELTA_AT, pack(">i", delta)), f"a batch whose last offset delta is {delta}"
        case 6:
            count = rng.choice((-1, -(2**31), INT32_MAX, 77, 0))
            return _with(sound, _COUNT_AT, pack(">i", count)), f"a batch that claims to have {count} records"
        case 7:
            garbage = build_control_batch(offset, epoch, TIMESTAMP_MS, [(rng.choice((2, 3, 4, 5, 6)), b"\xff" * 9)])
            return garbage, "a control record that cannot be decoded"
        case 8:
            return _with(sound, _ATTRIBUTES_AT, pack(">h", _CONTROL)), "data that is marked as control records"
        case 9:
            return build_batch(offset, rng.choice(NEGATIVE_EPOCHS), TIMESTAMP_MS, [b"x"]), "a batch of a negative epoch"
        case _:
            return _two_voter_sets(rng, offset, epoch), "two sets of voters at one offset"


def plausible_records(rng: Random, target: AttackTarget) -> tuple[bytes, str]:
    """Valid records that no leader has written."""
    view = target.view
    offset, epoch = view.log_end_offset, view.epoch
    if rng.random() < 0.5:
        values = [rng.randbytes(rng.choice((0, 1, 30))) for _ in range(rng.choice((1, 1, 5)))]
        epoch -= rng.choice((0, 0, 1))
        return build_batch(offset, max(epoch, 0), rng.choice((TIMESTAMP_MS, -1, 2**62)), values), "records"
    voter = VotersRecordVoter(voter_id=rng.choice((STRANGER_ID, *target.voter_ids)), voter_directory_id=Uuid.ZERO)
    changes = (KRaftVersionRecord(kraft_version=rng.choice((0, 1, 1, 9))), VotersRecord(voters=(voter,)))
    chosen = rng.choice((changes, changes[:1], changes[1:], (VotersRecord(voters=()),)))
    records = [(kind, value) for kind, _, value in map(encode_control, chosen)]
    return build_control_batch(offset, epoch, TIMESTAMP_MS, records), f"control records {chosen}"


def _two_voter_sets(rng: Random, offset: int, epoch: int) -> bytes:
    """Three control records in a batch with a record count of one in its header."""
    voter = VotersRecordVoter(voter_id=rng.choice((1, STRANGER_ID)), voter_directory_id=Uuid(rng.randbytes(16)))
    changes = (KRaftVersionRecord(kraft_version=1), VotersRecord(voters=(voter,)), VotersRecord(voters=(voter,)))
    records = [(kind, value) for kind, _, value in map(encode_control, changes)]
    return _with(build_control_batch(offset, epoch, TIMESTAMP_MS, records), _LAST_DELTA_AT, pack(">i", 0))


def _with(batch: bytes, place: int, field: bytes) -> bytes:
    """The batch with other bytes at a position and a valid checksum."""
    return with_checksum(batch[:place] + field + batch[place + len(field) :])
