"""The requests that a broker answers from its metadata image, and those that it forwards (Kafka: `KafkaApis`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from importlib import import_module
from random import Random
from typing import Final

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.access.failures import RequestFailures
from kraft.broker.metadata.auto_creation import AutoCreation
from kraft.broker.metadata.brokers import describe_cluster
from kraft.broker.metadata.config_changes import Refusals, judged
from kraft.broker.metadata.configs import describe_client_quotas, list_config_resources, refuse_client_quotas
from kraft.broker.metadata.coordinators import find_coordinator, refuse_coordinator
from kraft.broker.metadata.forwarding import Forwarding, refused
from kraft.broker.metadata.served import FORWARDED, METADATA_APIS
from kraft.broker.metadata.settings import MetadataSettings
from kraft.broker.metadata.tokens import describe_tokens
from kraft.broker.metadata.topics import (
    describe_topic_partitions,
    metadata,
    missing,
    refuse_metadata,
    refuse_topic_partitions,
)
from kraft.broker.reply_keys import Creation, Forwarded
from kraft.broker.rights import Permissions, Rights
from kraft.limits import METADATA_STEPS_PER_TURN
from kraft.steps import Answering
from kraft.wire import Answer, Drop, Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.inbound import ANONYMOUS
from transport.protocol.messages import (
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeDelegationTokenRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    MetadataRequest,
)


def load_decisions() -> None:
    """Load what a broker needs only for some requests: a node calls this in a thread once it serves.

    The first such request would else wait for the modules, and all others with it: a third of a second, where Python
    keeps no compiled modules.
    """
    for name in ("kraft.broker.metadata.reads", "kraft.access.refusals"):
        import_module(name)


_OF_TOKENS: Final = (
    *(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN),
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)
"""The APIs for clients that have logged in, and not by a token (`KafkaApis.allowTokenRequests`)."""


class MetadataRequests:
    """Answers what a broker knows from its image, a long answer in several turns, and forwards the other requests."""

    apis = METADATA_APIS

    def __init__(
        self,
        settings: MetadataSettings,
        rng: Random,
        rights: Rights | None = None,
        failures: RequestFailures | None = None,
    ) -> None:
        """Without `rights` every client may do everything, without `failures` an unexpected exception is raised."""
        self.settings = settings
        self._failures = RequestFailures() if failures is None else failures
        self._rights = Rights() if rights is None else rights
        self._rng = rng
        self._forwarding = Forwarding(settings.request_timeout_ms)
        self._creation = AutoCreation(
            num_partitions=settings.num_partitions,
            replication_factor=settings.default_replication_factor,
            timeout_ms=settings.request_timeout_ms,
        )
        self._refusals: dict[int, Refusals] = {}
        """The resources that this broker has refused of requests that it forwards, by the ids of these."""
        self._long: deque[tuple[int, Answering]] = deque()
        """The answers that need further turns, with the ids of their requests."""

    def on_request(self, asked: WireRequest, image: MetadataImage, now_ms: int) -> Answer | None:
        """Answer a request; None if `poll` returns the answer later."""
        self._rights.use(image)
        if isinstance(asked.message, IncrementalAlterConfigsRequest) and not asked.message.resources:
            # The node has answered all of it: only changes of its loggers.
            return Answer(asked.request_id, IncrementalAlterConfigsResponse())
        if asked.api_key in FORWARDED and not (asked.api_key in _OF_TOKENS and _is_unauthenticated(asked)):
            try:
                return self._forward(asked, now_ms)
            except Exception as failure:
                return refused(asked, self._failures.note(asked.message, failure).error)
        answering = self._answering(asked, image, now_ms)
        answer = _advance(answering, METADATA_STEPS_PER_TURN)
        if answer is None:
            self._long.append((asked.request_id, answering))
            return None
        return Answer(asked.request_id, answer)

    def _forward(self, asked: WireRequest, now_ms: int) -> Answer | None:
        """Forward a request, without the changes of brokers that this broker refuses itself."""
        refusals = judged(asked.message, self.settings.broker_id)
        if refusals is not None and len(refusals.answers) == len(refusals.message.resources):
            return Answer(asked.request_id, refusals.merged())
        self._forwarding.forward(asked, now_ms, None if refusals is None else refusals.kept)
        if refusals is not None:
            self._refusals[asked.request_id] = refusals
        return None

    def _answering(self, asked: WireRequest, image: MetadataImage, now_ms: int) -> Answering:
        """The answer in steps; a request that fails as a whole has the error response of its API."""
        try:
            return (yield from self._of(asked, image, now_ms))
        except ApiError as refusal_of_all:
            refused = refusal_of_all
        except Exception as failure:
            refused = self._failures.note(asked.message, failure)
        return (yield from self._refused(asked, refused))

    def _refused(self, asked: WireRequest, refused: ApiError) -> Answering:
        """The answer to a request that fails as a whole."""
        match asked.message:
            case MetadataRequest() as request:
                return refuse_metadata(request, refused.error, asked.version)
            case DescribeTopicPartitionsRequest() as request:
                return refuse_topic_partitions(request, refused.error)
            case DescribeClientQuotasRequest():
                return refuse_client_quotas(refused.error, refused.text)
            case FindCoordinatorRequest() as request:
                return refuse_coordinator(request, refused.error, asked.version)
            case ListConfigResourcesRequest():
                return ListConfigResourcesResponse(error_code=refused.error)
            case request:
                # Loaded here, as below.
                from kraft.access.refusals import refusal

                return (yield from refusal(request, refused))

    def _of(self, asked: WireRequest, image: MetadataImage, now_ms: int) -> Answering:
        settings, version, permissions = self.settings, asked.version, self._rights.of(asked)
        if asked.api_key in _OF_TOKENS and _is_unauthenticated(asked):
            raise ApiError(Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        match asked.message:
            case MetadataRequest() as request:
                return (yield from self._metadata(asked, request, image, permissions))
            case DescribeTopicPartitionsRequest() as request:
                return (
                    yield from describe_topic_partitions(
                        image,
                        request,
                        listener=asked.listener,
                        limit=settings.max_partitions,
                        permissions=permissions,
                    )
                )
            case DescribeClusterRequest() as request:
                return describe_cluster(
                    image,
                    request,
                    version=version,
                    listener=asked.listener,
                    cluster_id=settings.cluster_id,
                    rng=self._rng,
                    permissions=permissions,
                )
            case FindCoordinatorRequest() as request:
                return (
                    yield from find_coordinator(
                        image,
                        request,
                        version=version,
                        listener=asked.listener,
                        broker_id=settings.broker_id,
                        permissions=permissions,
                    )
                )
            case DescribeDelegationTokenRequest() as request:
                return (yield from describe_tokens(image, request, permissions, settings.token_secret))
            case ListConfigResourcesRequest() as request:
                _check_described(permissions)
                return (yield from list_config_resources(image, request, version=version, listener=asked.listener))
            case DescribeClientQuotasRequest() as request:
                _check_described(permissions)
                return (yield from describe_client_quotas(image, request))
            case request:
                # Loaded here, because a broker needs all decisions of a controller only for these requests.
                from kraft.broker.metadata.reads import read_as_a_controller

                return (yield from read_as_a_controller(asked, request, image, settings, permissions))

    def _metadata(
        self, asked: WireRequest, request: MetadataRequest, image: MetadataImage, permissions: Permissions
    ) -> Answering:
        creates = self.settings.auto_create_topics and request.allow_auto_topic_creation
        answer = yield from metadata(
            image,
            request,
            version=asked.version,
            listener=asked.listener,
            cluster_id=self.settings.cluster_id,
            rng=self._rng,
            permissions=permissions,
            creates=creates,
        )
        if creates:
            self._creation.create(missing(answer), asked)
        return answer

    def on_moved(self) -> None:
        """Replicas may have moved: no answer of this class waits for that."""

    def on_reply(self, key: Hashable, response: Message | None, now_ms: int) -> None:
        """Take the reply to a `Send`; None if the request failed."""
        match key:
            case Creation(number=number):
                self._creation.on_reply(number, response)
            case Forwarded(number=number):
                self._forwarding.on_reply(number, response, now_ms)
            case _:
                raise AssertionError(f"no request of a client has asked for {key}")

    def deadline_ms(self) -> int:
        """When the next `poll` is due."""
        if self._long or self._creation.is_due:
            return 0
        return self._forwarding.deadline_ms()

    def poll(self, now_ms: int) -> Iterator[Send | Answer | Drop]:
        """Go on with a long answer; returns what is to be sent."""
        yield from self._creation.poll()
        for each in self._forwarding.poll(now_ms):
            if isinstance(each, Send):
                yield each
                continue
            refusals = self._refusals.pop(each.request_id, None)
            if refusals is not None and isinstance(each, Answer):
                yield Answer(each.request_id, refusals.merged(each.message))
            else:
                yield each
        if self._long:
            request_id, answering = self._long.popleft()
            answer = _advance(answering, METADATA_STEPS_PER_TURN)
            if answer is None:
                self._long.append((request_id, answering))
            else:
                yield Answer(request_id, answer)


def _is_unauthenticated(asked: WireRequest) -> bool:
    """Whether the client has not logged in, or only by a delegation token."""
    return asked.principal == ANONYMOUS or asked.principal.is_token


def _check_described(permissions: Permissions) -> None:
    """Raise `ApiError` if the client may not describe the configurations of the cluster."""
    if not permissions.may(AclOperation.DESCRIBE_CONFIGS, AclResource.CLUSTER):
        error = Error.CLUSTER_AUTHORIZATION_FAILED
        raise ApiError(error, error.message)


def _advance(answering: Answering, steps: int) -> Message | None:
    """Make some steps of an answer; returns the answer if it is complete."""
    for _ in range(steps):
        try:
            next(answering)
        except StopIteration as done:
            answer: Message = done.value
            return answer
    return None
