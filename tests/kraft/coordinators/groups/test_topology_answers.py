"""StreamsGroupTopologyDescriptionUpdate is answered with the bytes of a broker of Kafka 4.4.0."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.access.authorizer import AclOperation, AclResource, AuthorizerSettings
from kraft.coordinators.groups.streams_handler import StreamsGroupHandler
from kraft.handling.rights import Rights
from metadata_log.records.metadata import AccessControlEntryRecord, FeatureLevelRecord
from metadata_log.types import Uuid
from support.broker.request_brokers import cluster_of, replayed, wire_request
from support.broker.topology_answers import OFF, ON, Exchange, recorded
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request, decode_response, encode_response
from transport.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateResponse,
)

KEY = 93
DENY, LITERAL = 2, 3


@pytest.mark.parametrize("name", [ON, OFF])
def test_each_answer_has_kafkas_bytes(name: str) -> None:
    rule = AccessControlEntryRecord(
        id=Uuid(bytes(16)),
        resource_type=AclResource.GROUP,
        resource_name="hidden",
        pattern_type=LITERAL,
        principal="User:ANONYMOUS",
        host="*",
        operation=AclOperation.READ,
        permission_type=DENY,
    )
    image = replayed(cluster_of([]), FeatureLevelRecord(name="streams.version", feature_level=1), rule)
    rights = Rights(AuthorizerSettings(allows_without_acl=True))
    rights.use(image)
    handler = StreamsGroupHandler(is_enabled=name == ON, rights=rights)
    for one in recorded()[name]:
        header, message = decode_request(bytes.fromhex(one.request), apis=ALL_APIS)
        request: Any = wire_request(1, KEY, 0, message)
        answer = handler.update_topology(request, image, 0).message
        assert encode_response(KEY, 0, header.correlation_id, answer, apis=ALL_APIS).hex() == one.answer, one.group


def test_the_recorded_answers_are_kafkas_three() -> None:
    def error(one: Exchange) -> tuple[str, int]:
        _, answer = decode_response(KEY, 0, bytes.fromhex(one.answer), apis=ALL_APIS)
        assert isinstance(answer, StreamsGroupTopologyDescriptionUpdateResponse)
        return one.group, answer.error_code

    unsupported = Error.UNSUPPORTED_VERSION
    assert {name: dict(map(error, found)) for name, found in recorded().items()} == {
        ON: {"g": unsupported, "hidden": Error.GROUP_AUTHORIZATION_FAILED, "": unsupported},
        OFF: {"g": unsupported, "hidden": unsupported, "": unsupported},
    }
