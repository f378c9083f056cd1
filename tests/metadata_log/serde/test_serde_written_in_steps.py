"""A long message is written in steps: the bytes are those of `encode`, and no step writes more elements than it may."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metadata_log.errors import EncodeError
from metadata_log.serde import encode
from metadata_log.serde.codec import encode_in_steps, finished
from support.serde_values import CLASS_VERSIONS, is_flexible, values
from transport.protocol.messages import ElectLeadersResponse
from transport.protocol.messages.elect_leaders import PartitionResult, ReplicaElectionResult

relaxed = settings(
    deadline=None,
    max_examples=300,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def elections(topics: int, partitions: int) -> ElectLeadersResponse:
    outcomes = [PartitionResult(partition_id=at, error_code=84, error_message="not needed") for at in range(partitions)]
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=f"topic-{number}", partition_result=outcomes) for number in range(topics)
        ]
    )


@relaxed
@given(st.data(), st.integers(1, 5), st.integers(1, 5))
def test_encoding_in_steps_gives_the_bytes_of_one_step(data: st.DataObject, first: int, following: int) -> None:
    cls, version = data.draw(st.sampled_from(CLASS_VERSIONS), label="class")
    message = data.draw(values(cls, version, flexible=is_flexible(cls, version)), label="message")
    assert b"".join(finished(encode_in_steps(message, version, first, following))) == encode(message, version)


def test_each_step_encodes_a_bounded_number_of_elements() -> None:
    message = elections(topics=30, partitions=100)
    steps = encode_in_steps(message, 2, 10, 100)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            pieces = done.value
            break
        count += 1
    assert count == 1 + (30 * 101 - 10) // 100
    size = max(len(piece) for piece in pieces)
    assert size < 100 * len(encode(elections(1, 100), 2)) // 90
    assert b"".join(pieces) == encode(message, 2)


def test_encoding_in_steps_raises_the_usual_errors() -> None:
    message = elections(topics=1, partitions=1)
    with pytest.raises(EncodeError, match="no version 77"):
        finished(encode_in_steps(message, 77, 1, 1))
    outcome = PartitionResult(partition_id=1 << 40)
    bad = ElectLeadersResponse(replica_election_results=[ReplicaElectionResult(topic="t", partition_result=[outcome])])
    with pytest.raises(EncodeError, match="partitionId"):
        finished(encode_in_steps(bad, 2, 1, 1))
