"""The table of a broker's APIs: what serves each, what it waits for, what refuses it (Kafka: `KafkaApis.handle`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kraft.access.authorizer import AclOperation
from kraft.broker.metadata import answers as metadata
from kraft.broker.metadata.answers import MetadataHandler
from kraft.broker.metadata.forwarding import Forwarding, refused
from kraft.broker.request.fetch import FetchHandler, refuse_fetch
from kraft.broker.request.produce import ProduceHandler
from kraft.coordinators.transactions.producer_ids import InitProducerIdHandler
from kraft.handling.api import Api, Begin, M, Refuse, row
from kraft.limits import METADATA_STEPS_PER_TURN
from transport.protocol import messages as m
from transport.protocol.apis import APIS, ApiKey

if TYPE_CHECKING:
    from kraft.broker.request.delete_records import DeleteRecordsHandler
    from kraft.broker.request.directories import DirectoriesHandler
    from kraft.broker.request.epoch_ends import EpochEndHandler
    from kraft.broker.request.list_offsets import ListOffsetsHandler
    from kraft.broker.request.markers import MarkersHandler
    from kraft.broker.request.producers import DescribeProducersHandler
    from kraft.broker.telemetry.handler import TelemetryHandler
    from kraft.handling.rights import Rights
    from kraft.partitions.replicas.manager import ReplicaManager


class Rooms:
    """The handlers of a broker's requests, one room for each family, but for those of the coordinators.

    The rooms that are no argument are loaded with the first request for one: a start needs none of them.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        rights: Rights,
        load_markers: Callable[[], MarkersHandler],
        *,
        produce: ProduceHandler,
        fetch: FetchHandler,
        producer_ids: InitProducerIdHandler,
        metadata: MetadataHandler,
        forwarding: Forwarding,
    ) -> None:
        self.produce = produce
        self.fetch = fetch
        self.producer_ids = producer_ids
        self.metadata = metadata
        self.forwarding = forwarding
        self._manager = manager
        self._rights = rights
        self._load_markers = load_markers

    @cached_property
    def offsets(self) -> ListOffsetsHandler:
        """ListOffsets."""
        from kraft.broker.request.list_offsets import ListOffsetsHandler

        return ListOffsetsHandler(self._manager, self._rights)

    @cached_property
    def epochs(self) -> EpochEndHandler:
        """OffsetForLeaderEpoch."""
        from kraft.broker.request.epoch_ends import EpochEndHandler

        return EpochEndHandler(self._manager, self._rights)

    @cached_property
    def deletions(self) -> DeleteRecordsHandler:
        """DeleteRecords."""
        from kraft.broker.request.delete_records import DeleteRecordsHandler

        return DeleteRecordsHandler(self._manager, self._rights)

    @cached_property
    def markers(self) -> MarkersHandler:
        """WriteTxnMarkers."""
        return self._load_markers()

    @cached_property
    def producers(self) -> DescribeProducersHandler:
        """DescribeProducers."""
        from kraft.broker.request.producers import DescribeProducersHandler

        return DescribeProducersHandler(self._manager, self._rights)

    @cached_property
    def directories(self) -> DirectoriesHandler:
        """DescribeLogDirs and AlterReplicaLogDirs."""
        from kraft.broker.request.directories import DirectoriesHandler

        return DirectoriesHandler(self._manager, self._rights)


FORWARDED: Final = frozenset(ApiKey(key) for key, api in APIS.items() if api.forwardable and "broker" in api.listeners)
"""The APIs that a broker forwards to the active controller."""


def _read(
    message: type[M],
    begin: Begin[M],
    refuse: Refuse[M],
    needs: AclOperation | None = None,
    *,
    needs_login: bool = False,
) -> Api[M]:
    """An API that is answered from the metadata."""
    return Api(
        message,
        begin,
        refuse=refuse,
        needs=needs,
        needs_login=needs_login,
        steps=METADATA_STEPS_PER_TURN,
        pauses=False,
    )


def _forwarded(key: ApiKey) -> Callable[[Rooms], Api[Any]]:
    return lambda one: Api(APIS[key].request, one.forwarding.begin, refuse=refused)


def _with_login(message: type[M], forwarding: Forwarding) -> Api[M]:
    return Api(message, forwarding.begin, refuse=refused, needs_login=True)


ROWS: Final[Mapping[ApiKey, Callable[[Rooms], Api[Any]]]] = MappingProxyType(
    {
        ApiKey.PRODUCE: row(
            lambda one: Api(
                m.ProduceRequest,
                one.produce.begin,
                one.produce.is_complete,
                one.produce.end,
                unpacks=True,
                outlives_client=True,
            )
        ),
        ApiKey.FETCH: row(
            lambda one: Api(m.FetchRequest, one.fetch.begin, one.fetch.is_complete, one.fetch.end, refuse_fetch)
        ),
        ApiKey.LIST_OFFSETS: row(
            lambda one: Api(m.ListOffsetsRequest, one.offsets.answer, refuse=one.offsets.refuse, unpacks=True)
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: row(
            lambda one: Api(m.OffsetForLeaderEpochRequest, one.epochs.answer, refuse=one.epochs.refuse)
        ),
        ApiKey.DELETE_RECORDS: row(
            lambda one: Api(m.DeleteRecordsRequest, one.deletions.begin, one.deletions.is_complete, one.deletions.end)
        ),
        ApiKey.INIT_PRODUCER_ID: row(
            lambda one: Api(
                m.InitProducerIdRequest, one.producer_ids.begin, one.producer_ids.is_complete, one.producer_ids.end
            )
        ),
        ApiKey.WRITE_TXN_MARKERS: row(
            lambda one: Api(m.WriteTxnMarkersRequest, one.markers.begin, one.markers.is_complete, one.markers.end)
        ),
        ApiKey.DESCRIBE_PRODUCERS: row(
            lambda one: Api(m.DescribeProducersRequest, one.producers.answer, refuse=one.producers.refuse)
        ),
        ApiKey.DESCRIBE_LOG_DIRS: row(
            lambda one: Api(
                m.DescribeLogDirsRequest,
                one.directories.describe,
                refuse=one.directories.refuse_describe,
                needs=AclOperation.DESCRIBE,
            )
        ),
        ApiKey.ALTER_REPLICA_LOG_DIRS: row(lambda one: Api(m.AlterReplicaLogDirsRequest, one.directories.alter)),
        ApiKey.METADATA: row(lambda one: _read(m.MetadataRequest, one.metadata.topics, metadata.refuse_topics)),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: row(
            lambda one: _read(
                m.DescribeTopicPartitionsRequest, one.metadata.topic_partitions, metadata.refuse_partitions
            )
        ),
        ApiKey.DESCRIBE_CLUSTER: row(
            lambda one: _read(m.DescribeClusterRequest, one.metadata.cluster, metadata.refuse)
        ),
        ApiKey.FIND_COORDINATOR: row(
            lambda one: _read(m.FindCoordinatorRequest, one.metadata.coordinators, metadata.refuse_coordinators)
        ),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: row(
            lambda one: _read(m.DescribeDelegationTokenRequest, one.metadata.tokens, metadata.refuse, needs_login=True)
        ),
        ApiKey.LIST_CONFIG_RESOURCES: row(
            lambda one: _read(
                m.ListConfigResourcesRequest,
                one.metadata.config_resources,
                metadata.refuse_config_resources,
                AclOperation.DESCRIBE_CONFIGS,
            )
        ),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: row(
            lambda one: _read(
                m.DescribeClientQuotasRequest,
                one.metadata.client_quotas,
                metadata.refuse_quotas,
                AclOperation.DESCRIBE_CONFIGS,
            )
        ),
        ApiKey.DESCRIBE_ACLS: row(lambda one: _read(m.DescribeAclsRequest, one.metadata.acls, metadata.refuse)),
        ApiKey.DESCRIBE_CONFIGS: row(
            lambda one: _read(m.DescribeConfigsRequest, one.metadata.configs, metadata.refuse)
        ),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: row(
            lambda one: _read(m.DescribeUserScramCredentialsRequest, one.metadata.scram_credentials, metadata.refuse)
        ),
        **{key: _forwarded(key) for key in FORWARDED},
        ApiKey.ALTER_CONFIGS: row(lambda one: Api(m.AlterConfigsRequest, one.forwarding.begin_configs, refuse=refused)),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: row(
            lambda one: Api(m.IncrementalAlterConfigsRequest, one.forwarding.begin_configs, refuse=refused)
        ),
        # For clients that have logged in, and not by a token (`KafkaApis.allowTokenRequests`).
        ApiKey.CREATE_DELEGATION_TOKEN: row(lambda one: _with_login(m.CreateDelegationTokenRequest, one.forwarding)),
        ApiKey.RENEW_DELEGATION_TOKEN: row(lambda one: _with_login(m.RenewDelegationTokenRequest, one.forwarding)),
        ApiKey.EXPIRE_DELEGATION_TOKEN: row(lambda one: _with_login(m.ExpireDelegationTokenRequest, one.forwarding)),
    }
)
"""The rows, which `kraft.broker.requests` makes with the first request of each API."""
TELEMETRY_ROWS: Final[Mapping[ApiKey, Callable[[TelemetryHandler], Api[Any]]]] = MappingProxyType(
    {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: row(
            lambda one: Api(m.GetTelemetrySubscriptionsRequest, one.get, refuse=one.refuse_get)
        ),
        ApiKey.PUSH_TELEMETRY: row(
            lambda one: Api(m.PushTelemetryRequest, one.push, refuse=one.refuse_push, unpacks=True)
        ),
    }
)
"""The rows of a broker that takes the metrics of clients: a broker that does not has none of these APIs
(`ApiVersionManager`).
"""
