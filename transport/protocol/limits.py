"""How many bytes and values a frame may have, by API (Kafka: `socket.request.max.bytes`, `MAX_RECORDS_PER_USER_OP`).

One task elects, commits and decodes, so a frame must cost that task little, whatever peer sent the frame. The bytes are
checked once the length and the API are known, before the frame is read. The values are checked when an array announces
its length, before the first element is read. `metadata_log.serde.bounded` defines what counts as a value. One value
costs at most 0.4 microseconds, so 120,000 values take less than 50 milliseconds. See
`docs/decisions/0026-limits-of-frames.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from metadata_log.serde.codec import UNCOUNTED_BYTES
from transport.protocol.apis import ApiKey

MAX_FRAME_BYTES: Final = 104_857_600
"""The default of `socket.request.max.bytes`, which bounds every frame in addition to the limits here."""
HEADER_VALUES: Final = 1_000
"""A header has five fields. A header with more tagged fields than this is malformed."""
_KIB: Final = 1 << 10
_MIB: Final = 1 << 20


class Limit(Struct, frozen=True):
    """The most bytes of a frame, without its length, and the most values of its body."""

    size: int
    values: int


SMALL: Final = Limit(64 * _KIB, 16_000)
"""Messages with a handful of fields, whatever the size of the cluster. The largest are the listeners of a node, the
features that a node supports and the offline directories of a broker.
"""
TINY: Final = Limit(UNCOUNTED_BYTES, 8_000)
"""Messages that any unknown peer may send frequently: the votes and fetches of a quorum have one topic with one
partition, ApiVersions has two names.
"""
ADMIN: Final = Limit(8 * _MIB, 120_000)
"""Requests of an administrator's tool. Kafka refuses changes of more than 10,000 records with POLICY_VIOLATION; such a
change has at most 100,000 values and a few megabytes. A somewhat larger request gets Kafka's answer; a much larger one
is not decoded. ElectLeaders with 200,000 partitions of 20,000 topics needs 100,000 values.
"""
REGISTRATION: Final = Limit(256 * _KIB, 40_000)
"""A broker's listeners, features and log directories; and AssignReplicasToDirs, which a broker limits to 2,250 replicas
per request (`AssignmentsManager.MAX_ASSIGNMENTS_PER_REQUEST`).
"""
ISR_CHANGES: Final = Limit(16 * _MIB, 3_000_000)
"""AlterPartition: a broker sends every pending ISR change in one request and repeats the request until it is answered.
100,000 partitions with five replicas each must pass. Such a frame takes longer than 50 milliseconds; the connection
decodes it in steps.
"""
SASL: Final = Limit(512 * _KIB, 100)
"""Kafka's `sasl.server.max.receive.size`."""

_KEYS: Final[tuple[tuple[Limit, tuple[ApiKey, ...]], ...]] = (
    (
        TINY,
        (
            ApiKey.FETCH,
            ApiKey.FETCH_SNAPSHOT,
            ApiKey.API_VERSIONS,
            ApiKey.SASL_HANDSHAKE,
            ApiKey.VOTE,
            ApiKey.BEGIN_QUORUM_EPOCH,
            ApiKey.END_QUORUM_EPOCH,
            ApiKey.DESCRIBE_CLUSTER,
            ApiKey.UNREGISTER_BROKER,
            ApiKey.UNREGISTER_CONTROLLER,
            ApiKey.ALLOCATE_PRODUCER_IDS,
        ),
    ),
    (
        SMALL,
        (
            ApiKey.BROKER_HEARTBEAT,
            ApiKey.CONTROLLER_REGISTRATION,
            ApiKey.ADD_RAFT_VOTER,
            ApiKey.REMOVE_RAFT_VOTER,
            ApiKey.UPDATE_RAFT_VOTER,
            ApiKey.DESCRIBE_QUORUM,
            ApiKey.UPDATE_FEATURES,
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
        ),
    ),
    (REGISTRATION, (ApiKey.BROKER_REGISTRATION, ApiKey.ASSIGN_REPLICAS_TO_DIRS)),
    (ISR_CHANGES, (ApiKey.ALTER_PARTITION,)),
    (SASL, (ApiKey.SASL_AUTHENTICATE,)),
    (Limit(ADMIN.size + 64 * _KIB, 100), (ApiKey.ENVELOPE,)),
)
REQUESTS: Final[Mapping[int, Limit]] = MappingProxyType({int(key): limit for limit, keys in _KEYS for key in keys})
"""By API key; any other API has the limit `ADMIN`."""

FETCH_ANSWERS: Final = Limit(MAX_FRAME_BYTES, 8_000)
"""Fetch and FetchSnapshot carry megabytes of records in one field, and few other values."""
ADMIN_ANSWERS: Final = Limit(MAX_FRAME_BYTES, 16_000_000)
"""Answers to tools about a cluster with a million partitions. A node of a quorum sends no such request."""
ANSWERS: Final[Mapping[int, Limit]] = MappingProxyType(
    {
        ApiKey.FETCH: FETCH_ANSWERS,
        ApiKey.FETCH_SNAPSHOT: FETCH_ANSWERS,
        ApiKey.API_VERSIONS: SMALL,
        ApiKey.VOTE: SMALL,
        ApiKey.BEGIN_QUORUM_EPOCH: SMALL,
        ApiKey.END_QUORUM_EPOCH: SMALL,
        ApiKey.ADD_RAFT_VOTER: SMALL,
        ApiKey.REMOVE_RAFT_VOTER: SMALL,
        ApiKey.UPDATE_RAFT_VOTER: SMALL,
        ApiKey.CONTROLLER_REGISTRATION: SMALL,
        ApiKey.BROKER_REGISTRATION: SMALL,
        ApiKey.BROKER_HEARTBEAT: SMALL,
        ApiKey.ALLOCATE_PRODUCER_IDS: SMALL,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: REGISTRATION,
    }
)
"""By API key; any other API has the limit `ADMIN_ANSWERS`."""

PIPELINED: Final = frozenset(
    key.to_bytes(2, "big")
    for key in (
        ApiKey.API_VERSIONS,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
    )
)
"""The APIs, as their two bytes, with answers of a size in proportion to the request.

Any other API is a bulk API: a few bytes of request can cause megabytes of answer. A connection has one such request in
progress at a time. Kafka processes every request this way.
"""


def request_limit(api_key: int) -> Limit:
    """The limit of an API's requests."""
    return REQUESTS.get(api_key, ADMIN)


def answer_limit(api_key: int) -> Limit:
    """The limit of an API's answers."""
    return ANSWERS.get(api_key, ADMIN_ANSWERS)
