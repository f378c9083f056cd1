"""Requests with strange lists and strings, drawn from the declaration of each API, for two brokers in lockstep.

Each list of a request is once empty, once has its entries twice, and is null where that is allowed; each string is
empty, the longest, a name that no topic may have, or null. What surrounds it is a valid request about things that
both brokers have.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from metadata_log.serde import Message
from metadata_log.serde.fields import ArrayOf, FieldType, Kind, fields_at
from metadata_log.types import Uuid
from support.eventually import eventually
from support.wire import request_bytes
from transport.protocol.apis import Api, ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.broker_listener import AT_BROKERS
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_response
from transport.protocol.messages import (
    CreateTopicsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
)
from transport.protocol.messages.create_topics import CreatableTopic
from transport.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic

TOPIC: Final = "orders"
GROUP: Final = "readers"
TRANSACTIONAL: Final = "payments"
LONGEST: Final = "x" * 32_767
STRANGE: Final = ("", "bad name", "..", "\u0000", "é" * 200, LONGEST)
ANSWER_SECONDS: Final = 20
Path = tuple[str, ...]

STRINGS: Final[Mapping[str, str]] = {
    "name": TOPIC,
    "topic": TOPIC,
    "topic_name": TOPIC,
    "topics": TOPIC,
    "subscribed_topic_names": TOPIC,
    "group_id": GROUP,
    "groups": GROUP,
    "group_ids": GROUP,
    "groups_names": GROUP,
    "key": GROUP,
    "coordinator_keys": GROUP,
    "resource_name": TOPIC,
    "transactional_id": TRANSACTIONAL,
    "transactional_ids": TRANSACTIONAL,
    "v3_and_below_transactional_id": TRANSACTIONAL,
    "member_id": "",
    "entity_type": "user",
    "entity_name": "alice",
    "match": "alice",
    "host": "*",
    "principal": "User:alice",
    "principal_type": "User",
    "principal_name": "alice",
    "protocol_type": "consumer",
    "protocol_name": "range",
    "states_filter": "Stable",
    "types_filter": "classic",
    "state_filters": "Ongoing",
    "configuration_keys": "retention.ms",
    "feature": "group.version",
    "client_software_name": "tests",
    "client_software_version": "1",
    "committed_metadata": "note",
    "mechanism": "PLAIN",
}
"""What a string of this name is in a valid request."""
OF_STRUCT: Final[Mapping[tuple[ApiKey, str], Any]] = {
    (ApiKey.JOIN_GROUP, "group_id"): "joined",
    (ApiKey.DESCRIBE_CLUSTER, "endpoint_type"): 1,
    (ApiKey.JOIN_GROUP, "name"): "range",
    (ApiKey.JOIN_GROUP, "metadata"): b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff",
    (ApiKey.JOIN_GROUP, "session_timeout_ms"): 10_000,
    (ApiKey.JOIN_GROUP, "rebalance_timeout_ms"): 10_000,
    (ApiKey.FIND_COORDINATOR, "key_type"): 0,
    (ApiKey.CREATE_TOPICS, "name"): "made",
    (ApiKey.CREATE_TOPICS, "timeout_ms"): 10_000,
    (ApiKey.DELETE_TOPICS, "name"): "doomed",
    (ApiKey.DELETE_TOPICS, "topic_names"): "doomed",
    (ApiKey.DELETE_TOPICS, "topic_id"): Uuid.ZERO,
    (ApiKey.DELETE_TOPICS, "timeout_ms"): 10_000,
    (ApiKey.DELETE_RECORDS, "timeout_ms"): 10_000,
    (ApiKey.CREATE_PARTITIONS, "timeout_ms"): 10_000,
    (ApiKey.ELECT_LEADERS, "timeout_ms"): 10_000,
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, "timeout_ms"): 10_000,
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, "replicas"): 1,
    (ApiKey.UPDATE_FEATURES, "timeout_ms"): 10_000,
    (ApiKey.ADD_RAFT_VOTER, "timeout_ms"): 10_000,
    (ApiKey.CREATE_ACLS, "resource_type"): 2,
    (ApiKey.CREATE_ACLS, "resource_pattern_type"): 3,
    (ApiKey.CREATE_ACLS, "operation"): 3,
    (ApiKey.CREATE_ACLS, "permission_type"): 3,
    (ApiKey.DELETE_ACLS, "resource_type_filter"): 2,
    (ApiKey.DELETE_ACLS, "pattern_type_filter"): 3,
    (ApiKey.DELETE_ACLS, "operation"): 3,
    (ApiKey.DELETE_ACLS, "permission_type"): 3,
    (ApiKey.CREATE_TOPICS, "num_partitions"): -1,
    (ApiKey.CREATE_TOPICS, "replication_factor"): -1,
    (ApiKey.CREATE_TOPICS, "assignments"): [],
    (ApiKey.CREATE_TOPICS, "configs"): [],
    (ApiKey.CREATE_TOPICS, "validate_only"): True,
    (ApiKey.DESCRIBE_CONFIGS, "resource_type"): 2,
    (ApiKey.ALTER_CONFIGS, "resource_type"): 2,
    (ApiKey.ALTER_CONFIGS, "validate_only"): True,
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "resource_type"): 2,
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "validate_only"): True,
    (ApiKey.CREATE_PARTITIONS, "count"): 4,
    (ApiKey.CREATE_PARTITIONS, "assignments"): None,
    (ApiKey.CREATE_PARTITIONS, "validate_only"): True,
    (ApiKey.DESCRIBE_ACLS, "resource_type_filter"): 1,
    (ApiKey.DESCRIBE_ACLS, "pattern_type_filter"): 1,
    (ApiKey.DESCRIBE_ACLS, "operation"): 1,
    (ApiKey.DESCRIBE_ACLS, "permission_type"): 1,
    (ApiKey.ALTER_CLIENT_QUOTAS, "validate_only"): True,
    (ApiKey.UPDATE_FEATURES, "validate_only"): True,
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "name"): "alice",
    (ApiKey.DESCRIBE_QUORUM, "topic_name"): "__cluster_metadata",
    (ApiKey.DELETE_RECORDS, "offset"): 0,
    (ApiKey.LIST_OFFSETS, "timestamp"): -1,
    (ApiKey.LIST_OFFSETS, "replica_id"): -1,
    (ApiKey.LIST_OFFSETS, "current_leader_epoch"): -1,
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, "current_leader_epoch"): -1,
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, "replica_id"): -2,
    (ApiKey.OFFSET_COMMIT, "generation_id_or_member_epoch"): -1,
    (ApiKey.TXN_OFFSET_COMMIT, "generation_id_or_member_epoch"): -1,
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "group_id"): "modern",
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "member_id"): "m",
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "rebalance_timeout_ms"): 10_000,
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "server_assignor"): "uniform",
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "topic_partitions"): [],
    (ApiKey.CONSUMER_GROUP_DESCRIBE, "group_ids"): "modern",
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, "cursor"): None,
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, "response_partition_limit"): 100,
    (ApiKey.INIT_PRODUCER_ID, "transaction_timeout_ms"): 60_000,
    (ApiKey.INIT_PRODUCER_ID, "producer_id"): -1,
    (ApiKey.INIT_PRODUCER_ID, "producer_epoch"): -1,
    (ApiKey.LIST_CONFIG_RESOURCES, "resource_types"): 2,
    (ApiKey.FETCH, "replica_id"): -1,
    (ApiKey.FETCH, "max_bytes"): 1000,
    (ApiKey.FETCH, "partition_max_bytes"): 1000,
    (ApiKey.FETCH, "current_leader_epoch"): -1,
    (ApiKey.FETCH, "session_epoch"): -1,
    (ApiKey.FETCH, "forgotten_topics_data"): [],
    (ApiKey.PRODUCE, "transactional_id"): None,
    (ApiKey.PRODUCE, "acks"): 1,
    (ApiKey.PRODUCE, "timeout_ms"): 1000,
    (ApiKey.ALTER_REPLICA_LOG_DIRS, "path"): "/nowhere",
    (ApiKey.RENEW_DELEGATION_TOKEN, "renew_period_ms"): 1,
}
"""What a field is in a valid request of an API, where its name alone does not say it; None leaves it out."""
_OF_CONFIGS: Final = ("resource_name", "configs.name", "configs.value")
NOT_COMPARED: Final = frozenset(
    (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.UNREGISTER_BROKER, ApiKey.UNREGISTER_CONTROLLER)
)
"""What a listener without logins does not serve, and what would end the broker."""
VOLATILE: Final = frozenset(
    (
        *("throttle_time_ms", "topic_id", "producer_id", "producer_epoch", "member_id", "leader_id", "port", "host"),
        *("cluster_id", "log_dir", "total_bytes", "usable_bytes", "timestamp", "last_fetch_timestamp"),
        *("last_caught_up_timestamp", "transaction_start_time_ms", "directory_id", "high_watermark", "log_end_offset"),
        *("log_append_time_ms", "last_timestamp", "leader_epoch", "finalized_features_epoch", "replica_directory_id"),
        *(
            "supported_features",
            "finalized_features",
            "zk_migration_ready",
            "api_keys",
            "partition_size",
            "size",
            "offset_lag",
            "hmac",
        ),
        *("aborted_transactions", "records", "base_offset", "session_id", "leader", "generation_id"),
    )
)
"""The fields of answers that two brokers cannot have in common."""
LEFT_OUT: Final = frozenset(("error_message", "unknown_tagged"))
"""The fields of answers with free words, and those that no release has."""


IN_ORDER: Final = frozenset(
    (ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.DELETE_GROUPS)
)
"""The APIs whose answers have the order of Kafka's, which its own tests compare. Hash maps order those of others."""
NEVER_ANSWERED: Final = frozenset(
    (
        (ApiKey.JOIN_GROUP, "protocols twice"),
        (ApiKey.ADD_PARTITIONS_TO_TXN, "transactions empty"),
        *((ApiKey.WRITE_TXN_MARKERS, f"markers.topics{one} twice") for one in ("", ".partition_indexes")),
        (ApiKey.WRITE_TXN_MARKERS, "markers.topics.name 'bad name' around"),
        (ApiKey.ALTER_CONFIGS, "resources twice"),
        *((ApiKey.ALTER_CONFIGS, f"resources.{one} 'bad name' around") for one in _OF_CONFIGS),
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, f"components.entity_type {LONGEST[:10]!r}"),
    )
)
"""What Kafka's broker fails on without an answer. Ours must answer."""
FAILS_WHEN_LONG: Final = -1
"""Kafka's code where its answer would quote a name of 32 KB in a text that no answer can carry. Ours cuts the text."""
DIFFERENCES: Final[Mapping[tuple[ApiKey, str], str]] = {
    (ApiKey.JOIN_GROUP, "protocols.name 'bad name' around"): "a protocol that is named again has another vote",
    (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        "transactions.topics.name 'bad name' around",
    ): "Kafka finds errors by the id alone",
    (ApiKey.CREATE_DELEGATION_TOKEN, "owner_principal_type null"): "Kafka fails with UNKNOWN_SERVER_ERROR",
    (ApiKey.LIST_TRANSACTIONS, f"transactional_id_pattern {LONGEST[:10]!r}"): "patterns are bounded",
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, "topics.name ''"): "Kafka fails with UNKNOWN_SERVER_ERROR",
}
"""What differs on purpose, as `docs/differences.md` says."""


class Case(Struct, frozen=True):
    """A request, and in words what is strange with it."""

    key: ApiKey
    version: int
    shape: str
    message: Message


def cases(key: ApiKey, versions: tuple[int, ...], state: State) -> Iterator[Case]:
    """The requests of an API: a valid one, then one for each strange value of each list and string."""
    api = AT_BROKERS[key]
    for version in versions:
        valid = _valid(api, api.request, version, state)
        yield Case(key, version, "valid", valid)
        for number, (shape, message) in enumerate(_strange(api.request, version, valid, ())):
            if isinstance(message, JoinGroupRequest) and message.group_id == "joined":
                # Else the request would wait for the members that joined before.
                message = structs.replace(message, group_id=f"joined-{version}-{number}")  # noqa: PLW2901
            yield Case(key, version, shape, message)


def _valid(api: Api, cls: type[Message], version: int, state: State) -> Message:
    found: dict[str, Any] = {}
    for field in fields_at(cls, version).in_order:
        given = OF_STRUCT.get((api.key, field.name), ...)
        if given is None or isinstance(given, list):
            found[field.name] = given
        elif given is not ...:
            found[field.name] = [given] if isinstance(field.type, ArrayOf) else given
        elif field.tag is None:
            found[field.name] = _value(api, field.name, field.type, version, state)
    return cls(**found)


def _value(api: Api, name: str, kind: FieldType, version: int, state: State) -> Any:
    match kind:
        case ArrayOf():
            return [_value(api, name, kind.element, version, state)]
        case Kind.BOOL:
            return False
        case Kind.STRING:
            return STRINGS.get(name, "n")
        case Kind.BYTES | Kind.RECORDS:
            return b""
        case Kind.UUID:
            return state.topic_id
        case _ if name in ("producer_id", "producer_epoch"):
            return getattr(state, name)
        case Kind.FLOAT64:
            return 1.0
        case Kind():
            return 0
        case _:
            return _valid(api, kind, version, state)


def _strange(cls: type[Message], version: int, valid: Message, above: Path) -> Iterator[tuple[str, Message]]:
    """Copies of a structure in which one field is strange, or one field of a structure inside."""
    for field in fields_at(cls, version).in_order:
        value = getattr(valid, field.name)
        where = ".".join((*above, field.name))
        is_named = field.type is Kind.STRING or isinstance(field.type, ArrayOf)
        if is_named and version in field.nullable and value is not None:
            yield f"{where} null", structs.replace(valid, **{field.name: None})
        for shape, other in _values(field.type, value):
            yield f"{where} {shape}", structs.replace(valid, **{field.name: other})
        inner = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if isinstance(inner, Kind | ArrayOf) or not value:
            continue
        first = value[0] if isinstance(field.type, ArrayOf) else value
        is_list = isinstance(field.type, ArrayOf)
        for shape, other in _strange(inner, version, first, (*above, field.name)):
            yield shape, structs.replace(valid, **{field.name: [other] if is_list else other})
            if is_list and shape.endswith((repr(STRANGE[1]), "zero")):
                yield f"{shape} around", structs.replace(valid, **{field.name: [other, first, other]})


def _values(kind: FieldType, value: Any) -> Iterator[tuple[str, Any]]:
    match kind:
        case ArrayOf():
            if value:
                yield "empty", []
                yield "twice", [*value, *value]
            for shape, other in _values(kind.element, value[0] if value else None):
                yield f"of {shape}", [other]
                if value:
                    yield f"with {shape} around", [other, *value, other]
        case Kind.STRING:
            for one in STRANGE:
                yield repr(one[:10]), one
        case Kind.UUID if value is not None:
            yield "zero", Uuid.ZERO
        case _:
            return


class Connection:
    """A connection for one request after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def ask(self, message: Message, version: int) -> Message | None:
        """The answer; None if the broker closed the connection instead."""
        try:
            frame = self._frame(request_bytes(message, version))
        except (ConnectionError, TimeoutError) as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise
            return None
        key = next(one.key for one in ALL_APIS.values() if one.request is type(message))
        _, body = decode_response(key, version, frame, apis=ALL_APIS)
        return body

    def _frame(self, sent: bytes) -> bytes:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), ANSWER_SECONDS)
        self._socket.sendall(sent)
        reader = FrameReader()
        frames: list[bytes] = []
        while not frames:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError
            frames = reader.feed(data)
        return frames[0]

    def tell(self, message: Message, version: int) -> None:
        """Send a request without waiting for an answer."""
        self.close()
        with socket.create_connection(("127.0.0.1", self._port), ANSWER_SECONDS) as connection:
            connection.sendall(request_bytes(message, version))

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None


def shape_of(answer: Message | None, *, in_order: bool) -> Any:
    """What of an answer must be equal: all but what differs between any two brokers, and the words of texts.

    Args:
        answer: The answer; None for a closed connection.
        in_order: Whether the order of entries counts.
    """
    return None if answer is None else _shape("", msgspec.to_builtins(answer, enc_hook=str), in_order=in_order)


def _shape(name: str, value: Any, *, in_order: bool) -> Any:
    if name in VOLATILE:
        return "…"
    match value:
        case dict():
            return {key: _shape(key, inner, in_order=in_order) for key, inner in value.items() if key not in LEFT_OUT}
        case list() | tuple():
            inner = [_shape("", one, in_order=in_order) for one in value]
            return inner if in_order else sorted(inner, key=lambda one: json.dumps(one, sort_keys=True))
        case _:
            return value


class State(Struct, frozen=True):
    """What one broker has for the requests to be about."""

    topic_id: Uuid
    producer_id: int
    producer_epoch: int


def set_up(port: int) -> State:
    """Make a topic, a group with an offset, a consumer group, and a producer with transactions."""
    connection = Connection(port)
    topics = [CreatableTopic(name=one, num_partitions=2, replication_factor=1) for one in (TOPIC, "doomed")]
    connection.ask(CreateTopicsRequest(topics=topics, timeout_ms=ANSWER_SECONDS * 1000), 7)
    known: Any = connection.ask(MetadataRequest(topics=None), 12)
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="note")
    commit = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[offset])],
    )
    found: dict[str, Any] = {}

    def is_committed() -> bool:
        connection.ask(FindCoordinatorRequest(key=GROUP), 0)
        answer: Any = connection.ask(commit, 8)
        return answer.topics[0].partitions[0].error_code == 0

    def is_initialized() -> bool:
        connection.ask(FindCoordinatorRequest(key=TRANSACTIONAL, key_type=1), 1)
        request = InitProducerIdRequest(transactional_id=TRANSACTIONAL, transaction_timeout_ms=600_000)
        found["producer"] = connection.ask(request, 4)
        return found["producer"].error_code == 0

    eventually(is_committed, "a coordinator of groups", ANSWER_SECONDS)
    eventually(is_initialized, "a coordinator of transactions", ANSWER_SECONDS)
    connection.close()
    topic_id = next(one.topic_id for one in known.topics if one.name == TOPIC)
    return State(topic_id, found["producer"].producer_id, found["producer"].producer_epoch)
