"""The requests that a broker answers from its metadata image (Kafka: `KafkaApis`)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Any

from kraft.access.errors import ApiError
from kraft.broker.metadata.auto_creation import AutoCreation
from kraft.broker.metadata.brokers import describe_cluster
from kraft.broker.metadata.coordinators import find_coordinator, is_sought, refuse_coordinator
from kraft.broker.metadata.topics import (
    describe_topic_partitions,
    metadata,
    missing,
    refuse_metadata,
    refuse_topic_partitions,
)
from kraft.handling.coordinators import TOPICS
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.handling.steps import Handling
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from transport.protocol.messages import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)

if TYPE_CHECKING:
    from kraft.reads.reading import Reading
    from kraft.steps import Answering
    from transport.protocol.messages import (
        DescribeClientQuotasRequest,
        DescribeDelegationTokenRequest,
        ListConfigResourcesRequest,
    )


def load_decisions() -> None:
    """Load what a broker needs only for some requests: a node calls this in a thread once it has served for a while.

    The first such request would else wait for the modules, and all others with it: a third of a second, where Python
    keeps no compiled modules.
    """
    for name in (
        *("kraft.coordinators.rooms", "kraft.coordinators.runtime.partition", "kraft.partitions.log.cleaning.cleaner"),
        *("kraft.broker.metadata.reads", "kraft.access.refusals", "metadata_log.image.java_text"),
        *("kraft.reads.acls", "kraft.reads.configs", "kraft.reads.scram"),
        *("kraft.broker.metadata.configs", "kraft.broker.metadata.config_changes", "kraft.broker.metadata.tokens"),
    ):
        import_module(name)


class MetadataHandler:
    """Answers what the image tells, in steps of less than a millisecond: an answer about a million partitions delays no
    heartbeat. Every method raises `ApiError` for a request that fails as a whole.

    Args:
        settings: The settings.
        rng: The randomness for the controller that clients are told.
        rights: What clients may do.
        creation: Whom topics that do not exist are told.
    """

    def __init__(self, settings: RequestSettings, rng: Random, rights: Rights, creation: AutoCreation) -> None:
        self._settings = settings
        self._rng = rng
        self._rights = rights
        self._creation = creation

    def topics(self, request: WireRequest[MetadataRequest], image: MetadataImage, now_ms: int) -> Handling[Answer]:
        """Metadata: brokers, topics and their partitions; topics that do not exist are created if clients may."""
        message, settings = request.message, self._settings
        creates = settings.auto_create_topics and message.allow_auto_topic_creation
        answer = yield from metadata(
            image,
            message,
            version=request.version,
            listener=request.listener,
            cluster_id=settings.cluster_id,
            rng=self._rng,
            permissions=self._rights.of(request),
            creates=creates,
        )
        if creates:
            self._creation.create(missing(answer), request)
        return Answer(request.request_id, answer)

    def topic_partitions(
        self, request: WireRequest[DescribeTopicPartitionsRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """DescribeTopicPartitions."""
        message = request.message
        answer = yield from describe_topic_partitions(
            image,
            message,
            listener=request.listener,
            limit=self._settings.max_partitions,
            permissions=self._rights.of(request),
        )
        return Answer(request.request_id, answer)

    def cluster(self, request: WireRequest[DescribeClusterRequest], image: MetadataImage, now_ms: int) -> Answer:
        """DescribeCluster."""
        message = request.message
        answer = describe_cluster(
            image,
            message,
            version=request.version,
            listener=request.listener,
            cluster_id=self._settings.cluster_id,
            rng=self._rng,
            permissions=self._rights.of(request),
        )
        return Answer(request.request_id, answer)

    def coordinators(
        self, request: WireRequest[FindCoordinatorRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """FindCoordinator."""
        message = request.message
        answer = yield from find_coordinator(
            image,
            message,
            version=request.version,
            listener=request.listener,
            permissions=self._rights.of(request),
        )
        kind = message.key_type
        if kind in TOPICS and TOPICS[kind] not in image.topics.by_name and is_sought(answer):
            self._creation.create_internal(kind)
        return Answer(request.request_id, answer)

    def tokens(
        self, request: WireRequest[DescribeDelegationTokenRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """DescribeDelegationToken."""
        # Loaded here, as what follows: few brokers are ever asked for it.
        from kraft.broker.metadata.tokens import describe_tokens

        message = request.message
        answer = yield from describe_tokens(image, message, self._rights.of(request), self._settings.tokens.secret)
        return Answer(request.request_id, answer)

    def config_resources(
        self, request: WireRequest[ListConfigResourcesRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """ListConfigResources."""
        from kraft.broker.metadata.configs import list_config_resources

        message = request.message
        answer = yield from list_config_resources(image, message, version=request.version, listener=request.listener)
        return Answer(request.request_id, answer)

    def client_quotas(
        self, request: WireRequest[DescribeClientQuotasRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """DescribeClientQuotas."""
        from kraft.broker.metadata.configs import describe_client_quotas

        message = request.message
        return Answer(request.request_id, (yield from describe_client_quotas(image, message)))

    # The reads that controllers answer, too, by the same functions

    def acls(self, request: WireRequest, image: MetadataImage, now_ms: int) -> Handling[Answer]:
        """DescribeAcls."""
        from kraft.reads.acls import describe_acls

        return (yield from self._as_a_controller(describe_acls, request, image))

    def configs(self, request: WireRequest, image: MetadataImage, now_ms: int) -> Handling[Answer]:
        """DescribeConfigs."""
        from kraft.reads.configs import describe_configs

        return (yield from self._as_a_controller(describe_configs, request, image))

    def scram_credentials(self, request: WireRequest, image: MetadataImage, now_ms: int) -> Handling[Answer]:
        """DescribeUserScramCredentials."""
        from kraft.reads.scram import describe_scram_credentials

        return (yield from self._as_a_controller(describe_scram_credentials, request, image))

    def _as_a_controller(
        self, read: Callable[[Reading, Any], Answering], request: WireRequest, image: MetadataImage
    ) -> Handling[Answer]:
        from kraft.broker.metadata.reads import read_as_a_controller

        answer = yield from read_as_a_controller(read, request, image, self._settings, self._rights.of(request))
        return Answer(request.request_id, answer)


# The answers to requests that fail as a whole


def refuse_topics(request: WireRequest[MetadataRequest], refused: ApiError) -> Answer:
    """Metadata with an error."""
    message = request.message
    return Answer(request.request_id, refuse_metadata(message, refused.error, request.version))


def refuse_partitions(request: WireRequest[DescribeTopicPartitionsRequest], refused: ApiError) -> Answer:
    """DescribeTopicPartitions with an error."""
    message = request.message
    return Answer(request.request_id, refuse_topic_partitions(message, refused.error))


def refuse_quotas(request: WireRequest, refused: ApiError) -> Answer:
    """DescribeClientQuotas with an error."""
    from kraft.broker.metadata.configs import refuse_client_quotas

    return Answer(request.request_id, refuse_client_quotas(refused.error, refused.text))


def refuse_coordinators(request: WireRequest[FindCoordinatorRequest], refused: ApiError) -> Answer:
    """FindCoordinator with an error."""
    message = request.message
    return Answer(request.request_id, refuse_coordinator(message, refused.error, request.version))


def refuse_config_resources(request: WireRequest, refused: ApiError) -> Answer:
    """ListConfigResources with an error."""
    from transport.protocol.messages import ListConfigResourcesResponse

    return Answer(request.request_id, ListConfigResourcesResponse(error_code=refused.error))


def refuse(request: WireRequest, refused: ApiError) -> Handling[Answer]:
    """The answer to any other request, which is that of a controller."""
    from kraft.access.refusals import refusal

    answer: Message = yield from refusal(request.message, refused)
    return Answer(request.request_id, answer)
