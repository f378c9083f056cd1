"""The table of a broker's APIs: what serves each, what it waits for, what refuses it (Kafka: `KafkaApis.handle`)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.access.authorizer import AclOperation
from kraft.broker.metadata import answers as metadata
from kraft.broker.metadata.answers import MetadataHandler
from kraft.broker.metadata.forwarding import Forwarding, refused
from kraft.broker.request import refusals
from kraft.broker.request.delete_records import DeleteRecordsHandler
from kraft.broker.request.directories import DirectoriesHandler
from kraft.broker.request.epoch_ends import EpochEndHandler
from kraft.broker.request.fetch import FetchHandler, refuse_fetch
from kraft.broker.request.list_offsets import ListOffsetsHandler
from kraft.broker.request.markers import MarkersHandler
from kraft.broker.request.produce import ProduceHandler
from kraft.coordinators.transactions.producer_ids import DescribeProducersHandler, InitProducerIdHandler
from kraft.handling.api import Api, Begin, Refuse
from kraft.limits import METADATA_STEPS_PER_TURN
from transport.protocol.apis import APIS, ApiKey

FORWARDED: Final = frozenset(ApiKey(key) for key, api in APIS.items() if api.forwardable and "broker" in api.listeners)
"""The APIs that a broker forwards to the active controller."""
LOGGED_IN: Final = frozenset(
    (ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN)
)
"""Those of them for clients that have logged in, and not by a token (`KafkaApis.allowTokenRequests`)."""

COORDINATED: Final = frozenset(
    (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_DELETE,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
    )
)
"""The APIs of the coordinators of groups and transactions: the rows of `kraft.coordinators.apis`."""


class Rooms(Struct, frozen=True):
    """The handlers of a broker's requests, one room for each family, but for those of the coordinators."""

    produce: ProduceHandler
    fetch: FetchHandler
    offsets: ListOffsetsHandler
    epochs: EpochEndHandler
    deletions: DeleteRecordsHandler
    producer_ids: InitProducerIdHandler
    markers: MarkersHandler
    producers: DescribeProducersHandler
    directories: DirectoriesHandler
    metadata: MetadataHandler
    forwarding: Forwarding


def apis_of(rooms: Rooms) -> dict[int, Api]:
    """The table, but for the coordinators."""
    one = rooms
    table: dict[ApiKey, Api] = {
        ApiKey.PRODUCE: Api(
            begin=one.produce.begin,
            is_complete=one.produce.is_complete,
            end=one.produce.end,
            is_plain=True,
            unpacks=True,
        ),
        ApiKey.FETCH: Api(
            begin=one.fetch.begin,
            is_complete=one.fetch.is_complete,
            end=one.fetch.end,
            refuse=refuse_fetch,
            is_plain=True,
        ),
        ApiKey.LIST_OFFSETS: Api(begin=one.offsets.answer, refuse=refusals.refuse_list_offsets, unpacks=True),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Api(begin=one.epochs.answer, refuse=refusals.refuse_epoch_ends),
        ApiKey.DELETE_RECORDS: Api(
            begin=one.deletions.begin, is_complete=one.deletions.is_complete, end=one.deletions.end
        ),
        ApiKey.INIT_PRODUCER_ID: Api(
            begin=one.producer_ids.begin, is_complete=one.producer_ids.is_complete, end=one.producer_ids.end
        ),
        ApiKey.WRITE_TXN_MARKERS: Api(
            begin=one.markers.begin, is_complete=one.markers.is_complete, end=one.markers.end
        ),
        ApiKey.DESCRIBE_PRODUCERS: Api(begin=one.producers.answer, refuse=refusals.refuse_producers),
        ApiKey.DESCRIBE_LOG_DIRS: Api(
            begin=one.directories.describe, refuse=refusals.refuse_log_dirs, needs=AclOperation.DESCRIBE
        ),
        ApiKey.ALTER_REPLICA_LOG_DIRS: Api(begin=one.directories.alter),
        ApiKey.METADATA: _read(one.metadata.topics, metadata.refuse_topics),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _read(one.metadata.topic_partitions, metadata.refuse_partitions),
        ApiKey.DESCRIBE_CLUSTER: _read(one.metadata.cluster, metadata.refuse),
        ApiKey.FIND_COORDINATOR: _read(one.metadata.coordinators, metadata.refuse_coordinators),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: _read(one.metadata.tokens, metadata.refuse, needs_login=True),
        ApiKey.LIST_CONFIG_RESOURCES: _read(
            one.metadata.config_resources, metadata.refuse_config_resources, AclOperation.DESCRIBE_CONFIGS
        ),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _read(
            one.metadata.client_quotas, metadata.refuse_quotas, AclOperation.DESCRIBE_CONFIGS
        ),
        ApiKey.DESCRIBE_ACLS: _read(one.metadata.as_a_controller, metadata.refuse),
        ApiKey.DESCRIBE_CONFIGS: _read(one.metadata.as_a_controller, metadata.refuse),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _read(one.metadata.as_a_controller, metadata.refuse),
    }
    for key in FORWARDED:
        table[key] = Api(begin=one.forwarding.begin, refuse=refused, needs_login=key in LOGGED_IN)
    return {int(key): table[key] for key in sorted(table)}


def _read(begin: Begin, refuse: Refuse, needs: AclOperation | None = None, *, needs_login: bool = False) -> Api:
    """An API that is answered from the metadata."""
    return Api(
        begin=begin, refuse=refuse, needs=needs, needs_login=needs_login, steps=METADATA_STEPS_PER_TURN, pauses=False
    )
