"""The reads of metadata that brokers and controllers answer by the same functions (Kafka: `KafkaApis`)."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any, Final

from kraft.broker.metadata.answering import Answering
from kraft.broker.metadata.settings import MetadataSettings
from kraft.broker.rights import Rights, caller_of
from kraft.controller.apis import APIS
from kraft.controller.decision.broker_sessions import BrokerSessions
from kraft.controller.decision.request_context import AdminSettings, RequestContext
from kraft.controller.decision.topic_configs import TopicDefaults
from kraft.controller.security.api_permissions import check_cluster
from kraft.controller.security.authorized_request import authorize_items
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message

NO_SESSIONS: Final = BrokerSessions(1)
"""A broker has no sessions of other brokers: a read from the image needs none."""


def read_as_a_controller(
    asked: WireRequest,
    request: Message,
    image: MetadataImage,
    now_ms: int,
    rng: Random,
    settings: MetadataSettings,
    rights: Rights,
) -> Answering:
    """The answer to a read that controllers serve, too, made by the same function; raises `ApiError`."""
    context = RequestContext(
        image=image,
        committed=image,
        next_offset=image.end.offset,
        version=asked.version,
        now_ms=now_ms,
        rng=rng,
        cluster_id=settings.cluster_id,
        defaults=TopicDefaults(min_isr=settings.min_insync_replicas, node_id=settings.broker_id),
        sessions=NO_SESSIONS,
        own_settings=settings.own_settings,
        caller=caller_of(asked),
        admin=AdminSettings(authorizer=rights.settings),
        authorizer=rights.authorizer,
        denials=rights.denials,
    )
    api = APIS[type(request)]
    check_cluster(context, api.key)
    permitted = yield from authorize_items(context, request)
    decision: Any = api.decide(context, permitted.request)
    result = (yield from _pauses(decision)) if isinstance(decision, Generator) else decision
    assert isinstance(result.response, Message), type(request)
    return permitted.finish(result.response)


def _pauses(decision: Generator[Any, None, Any]) -> Generator[None, None, Any]:
    """The steps of a controller's read, which writes no records."""
    while True:
        try:
            next(decision)
        except StopIteration as done:
            return done.value
        yield None
