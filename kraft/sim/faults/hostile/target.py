"""The state of the attacked node as the attacker knows it, and the values in hostile frames."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from msgspec import Struct

from kraft.invariants.observation import View
from kraft.quorum.values import ReplicaKey
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


class Target(Struct, frozen=True):
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


def any_id(rng: Random, target: Target) -> int:
    """An id of a node, of no node, or a negative one."""
    return rng.choice((*target.node_ids, STRANGER_ID, *NEGATIVE_IDS))


def some_id(rng: Random, target: Target) -> int:
    """An id of a node or of no node."""
    return rng.choice((*target.node_ids, STRANGER_ID))


def any_directory(rng: Random, target: Target) -> Uuid:
    """The directory of a voter, no directory, or a directory that does not exist."""
    known = tuple(key.directory_id for key in target.voters)
    return rng.choice((*known, target.key.directory_id, Uuid.ZERO, Uuid(rng.randbytes(16))))


def any_offset(rng: Random, target: Target) -> int:
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
