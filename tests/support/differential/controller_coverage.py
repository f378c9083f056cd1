"""The coverage of drawn requests: a controller's APIs, their versions, their options, the errors of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

from metadata_log.serde import Message, schema_of
from support.differential.controller_sides import Side
from support.differential.controller_stories import Step, newest
from transport.protocol import messages as m
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request

OPTIONS: Final = ("validate_only", "allow_replication_factor_change", "want_fence", "want_shut_down")

ERRORS: Final[dict[ApiKey, set[Error]]] = {
    ApiKey.BROKER_REGISTRATION: {
        Error.DUPLICATE_BROKER_REGISTRATION,
        Error.INCONSISTENT_CLUSTER_ID,
        Error.INVALID_REGISTRATION,
        Error.BROKER_ID_NOT_REGISTERED,
    },
    ApiKey.BROKER_HEARTBEAT: {Error.STALE_BROKER_EPOCH},
    ApiKey.UNREGISTER_BROKER: {Error.BROKER_ID_NOT_REGISTERED},
    ApiKey.CREATE_TOPICS: {
        Error.TOPIC_ALREADY_EXISTS,
        Error.INVALID_TOPIC_EXCEPTION,
        Error.INVALID_PARTITIONS,
        Error.INVALID_REPLICATION_FACTOR,
        Error.INVALID_REPLICA_ASSIGNMENT,
        Error.INVALID_CONFIG,
        Error.INVALID_REQUEST,
        Error.POLICY_VIOLATION,
    },
    ApiKey.DELETE_TOPICS: {Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID, Error.INVALID_REQUEST},
    ApiKey.CREATE_PARTITIONS: {
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.INVALID_PARTITIONS,
        Error.INVALID_REPLICA_ASSIGNMENT,
        Error.INVALID_REQUEST,
    },
    ApiKey.ALTER_PARTITION: {
        Error.STALE_BROKER_EPOCH,
        Error.UNKNOWN_TOPIC_ID,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_CONTROLLER,
        Error.FENCED_LEADER_EPOCH,
        Error.INVALID_UPDATE_VERSION,
        Error.INVALID_REQUEST,
        Error.INELIGIBLE_REPLICA,
        Error.NEW_LEADER_ELECTED,
    },
    ApiKey.ELECT_LEADERS: {
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.ELECTION_NOT_NEEDED,
        Error.PREFERRED_LEADER_NOT_AVAILABLE,
        Error.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        Error.INVALID_REQUEST,
    },
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.INVALID_REPLICA_ASSIGNMENT,
        Error.INVALID_REPLICATION_FACTOR,
        Error.NO_REASSIGNMENT_IN_PROGRESS,
    },
    ApiKey.ALTER_CONFIGS: {
        Error.INVALID_CONFIG,
        Error.INVALID_REQUEST,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.BROKER_ID_NOT_REGISTERED,
        Error.UNSUPPORTED_VERSION,
    },
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {
        Error.INVALID_CONFIG,
        Error.INVALID_REQUEST,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.BROKER_ID_NOT_REGISTERED,
        Error.UNSUPPORTED_VERSION,
    },
    ApiKey.ALTER_CLIENT_QUOTAS: {Error.INVALID_REQUEST},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {
        Error.RESOURCE_NOT_FOUND,
        Error.DUPLICATE_RESOURCE,
        Error.UNACCEPTABLE_CREDENTIAL,
        Error.UNSUPPORTED_SASL_MECHANISM,
    },
    ApiKey.CREATE_ACLS: {Error.INVALID_REQUEST},
    ApiKey.DELETE_ACLS: set(),
    ApiKey.CREATE_DELEGATION_TOKEN: {Error.INVALID_PRINCIPAL_TYPE},
    ApiKey.RENEW_DELEGATION_TOKEN: {
        Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        Error.DELEGATION_TOKEN_NOT_FOUND,
        Error.DELEGATION_TOKEN_OWNER_MISMATCH,
    },
    ApiKey.EXPIRE_DELEGATION_TOKEN: {
        Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        Error.DELEGATION_TOKEN_NOT_FOUND,
        Error.DELEGATION_TOKEN_OWNER_MISMATCH,
    },
    ApiKey.ALLOCATE_PRODUCER_IDS: {Error.STALE_BROKER_EPOCH},
    ApiKey.UPDATE_FEATURES: {Error.INVALID_UPDATE_VERSION},
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: {
        Error.STALE_BROKER_EPOCH,
        Error.UNKNOWN_TOPIC_ID,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_LEADER_OR_FOLLOWER,
    },
    ApiKey.CONTROLLER_REGISTRATION: set(),
    ApiKey.ENVELOPE: {Error.INVALID_REQUEST, Error.PRINCIPAL_DESERIALIZATION_FAILURE, Error.UNSUPPORTED_VERSION},
}
"""The errors of every API that writes which sequences of requests are to reach. Left out are those that depend on the
level of metadata.version or on the settings of the node, and NOT_CONTROLLER, which a test of its own is for."""


class Coverage:
    """Counts what has been asked and answered."""

    def __init__(self) -> None:
        self.versions: defaultdict[ApiKey, Counter[int]] = defaultdict(Counter)
        self.errors: defaultdict[ApiKey, Counter[Error]] = defaultdict(Counter)
        self.options: Counter[tuple[ApiKey, str]] = Counter()
        self.forwarded: Counter[ApiKey] = Counter()

    def note(self, side: Side, step: Step, answer: dict[str, Any]) -> None:
        """One step, and what this side has answered; what an envelope holds counts for itself, too."""
        request = step[0](side)
        version = newest(request, step[1])
        if isinstance(request, m.EnvelopeRequest):
            if "response_data" in answer:
                self._count(ApiKey.ENVELOPE, version, answer)
                return
            self._count(ApiKey.ENVELOPE, version, {"error_code": 0})
            header, request = decode_request(request.request_data)
            version = header.request_api_version
            self.forwarded[ApiKey(header.request_api_key)] += 1
        api_key = schema_of(type(request)).api_key
        assert api_key is not None
        self._count(ApiKey(api_key), version, answer)
        self._count_options(ApiKey(api_key), request)

    def _count(self, key: ApiKey, version: int, answer: dict[str, Any]) -> None:
        self.versions[key][version] += 1
        self.errors[key].update(error_codes(answer))

    def _count_options(self, key: ApiKey, request: Message) -> None:
        defaults = type(request)()
        for option in OPTIONS:
            if getattr(request, option, None) != getattr(defaults, option, None):
                self.options[key, option] += 1


def error_codes(answer: object) -> Iterator[Error]:
    """Every error code in an answer, at any depth."""
    if isinstance(answer, dict):
        if "error_code" in answer:
            yield Error(answer["error_code"])
        for value in answer.values():
            yield from error_codes(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from error_codes(value)
