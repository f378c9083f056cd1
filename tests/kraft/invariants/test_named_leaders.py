"""The check of the addresses of named leaders, on answers to a stranger's request."""

from __future__ import annotations

from kraft.invariants.wire import FIRST_WITH_ENDPOINTS, check_leader_can_be_found
from metadata_log.types import Uuid
from transport.protocol.messages.fetch import FetchableTopicResponse, FetchResponse


def test_an_answer_without_partitions_names_no_leader() -> None:
    """A broker answers so to a stranger that asks for the metadata topic and for none of its partitions."""
    answer = FetchResponse(responses=[FetchableTopicResponse(topic_id=Uuid.METADATA_TOPIC)])
    assert answer.responses[0].partitions == []
    check_leader_can_be_found(1, answer, FIRST_WITH_ENDPOINTS[FetchResponse])
