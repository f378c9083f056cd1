"""Requests that no valid client sends: our nodes react as Apache Kafka's do, byte for byte where there is an answer."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from metadata_log.serde import Message
from support.interop.our_nodes import our_controller, our_format
from support.interop.real_kafka import Nodes, eventually, layout_in, running
from support.wire import active_controller, ask, framed, leader_of, reaction, request_bytes, set_client_metrics
from transport.protocol.errors import Error
from transport.protocol.messages.api_versions import ApiVersionsRequest
from transport.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
    BeginQuorumEpochResponse,
    LeaderEndpoint,
)
from transport.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from transport.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from transport.protocol.messages.fetch import FetchRequest
from transport.protocol.messages.vote import VoteRequest, VoteRequestPartitionData, VoteRequestTopicData

pytestmark = pytest.mark.kafka

STRANGER = "AAAAAAAAAAAAAAAAAAAAAg"
TOPIC = "__cluster_metadata"


def header(api_key: int, version: int, *, flexible: bool = True) -> bytes:
    """A request header, correct in itself."""
    client_id = b"interop"
    return struct.pack(">hhih", api_key, version, 7, len(client_id)) + client_id + b"\0" * flexible


def vote(cluster_id: str | None = None, topic: str = TOPIC) -> VoteRequest:
    """A pre-vote in an epoch long past, which changes no node's state."""
    partition = VoteRequestPartitionData(replica_id=2, pre_vote=True)
    topics = [VoteRequestTopicData(topic_name=topic, partitions=[partition])]
    return VoteRequest(cluster_id=cluster_id, voter_id=1, topics=topics)


def elsewhere() -> DescribeQuorumRequest:
    """A question about a partition that is none of the quorum's."""
    partition = DescribeQuorumRequestPartitionData(partition_index=3)
    return DescribeQuorumRequest(topics=[DescribeQuorumRequestTopicData(topic_name="orders", partitions=[partition])])


def whole(message: Message, version: int) -> bytes:
    return request_bytes(message, version)


def broken(sent: bytes, *, keep: int) -> bytes:
    """A request that ends early, with a length that fits."""
    return framed(sent[4:][:keep])


BAD = {
    "unknown-api": framed(header(9999, 0)),
    "negative-api": framed(header(-1, 0)),
    "api-of-brokers": framed(header(0, 9) + b"\0" * 16),
    "api-that-is-gone": framed(header(7, 3)),
    "vote-of-the-future": framed(header(52, 99) + b"\0" * 8),
    "fetch-of-the-past": framed(header(1, 0, flexible=False) + b"\0" * 16),
    "describe-quorum-of-the-future": framed(header(55, 99) + b"\0" * 8),
    "negative-version": framed(header(52, -1) + b"\0" * 8),
    "api-versions-of-the-future": framed(header(18, 99) + b"\0" * 8),
    "api-versions-with-a-bad-name": whole(ApiVersionsRequest(client_software_name="!", client_software_version="1"), 3),
    "length-0": framed(b""),
    "length-negative": b"\xff\xff\xff\xff",
    "length-above-the-limit": (104_857_601).to_bytes(4, "big"),
    "length-enormous": b"\x7f\xff\xff\xff",
    "three-bytes": framed(b"\0\x34\0"),
    "header-cut": framed(header(52, 2)[:9]),
    "client-id-too-long": framed(struct.pack(">hhih", 52, 2, 7, 30_000) + b"abc"),
    "body-missing": framed(header(52, 2)),
    "body-cut": broken(whole(vote(), 2), keep=40),
    "body-of-ones": framed(header(52, 2) + b"\xff" * 64),
    "array-of-two-billion": framed(header(44, 1) + b"\xff\xff\xff\xff\x07" + b"\0" * 16),
    "array-of-a-million": framed(header(44, 1) + b"\xc1\x84\x3d" + b"\0" * 16),
    "bytes-behind-the-body": framed(whole(vote(cluster_id=STRANGER), 2)[4:] + b"behind"),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100f8010000f40303") + bytes(range(200)),
}
RANGE_OF_4_3, RANGE_OF_4_4 = (struct.pack(">hhh", 18, 0, newest) for newest in (4, 5))
"""The versions of ApiVersions in the answer to an unknown one: those of 4.3.1, and ours, which are those of 4.4."""
ASTRAY = {
    "vote-of-another-cluster": whole(vote(cluster_id=STRANGER), 2),
    "begin-epoch-of-another-cluster": whole(BeginQuorumEpochRequest(cluster_id=STRANGER), 1),
    "end-epoch-of-another-cluster": whole(EndQuorumEpochRequest(cluster_id=STRANGER), 1),
    "fetch-of-another-cluster": whole(FetchRequest(cluster_id=STRANGER), 17),
    "vote-about-another-topic": whole(vote(topic="orders"), 2),
    "question-about-another-topic": whole(elsewhere(), 2),
}


@pytest.mark.parametrize("sent", (BAD | ASTRAY).values(), ids=(BAD | ASTRAY).keys())
def test_hostile_requests_get_kafkas_answer_and_connection_state(ours: Nodes, theirs: Nodes, sent: bytes) -> None:
    """The same answer or none, and the same verdict on the connection; both leaders lead on."""
    leaders = leader_of(ours.layout), leader_of(theirs.layout)
    answers, is_open = reaction(theirs.layout.ports[1], sent)
    expected = [answer.replace(RANGE_OF_4_3, RANGE_OF_4_4) for answer in answers], is_open
    assert reaction(ours.layout.ports[1], sent) == expected
    assert (leader_of(ours.layout), leader_of(theirs.layout)) == leaders
    assert set_client_metrics(ours.layout.ports[leaders[0]], "after", metrics=f"{len(sent)}") is Error.NONE


def test_begin_quorum_epoch_without_a_leader_endpoint_ends_no_node(tmp_path: Path) -> None:
    """Such a BeginQuorumEpoch ends Apache Kafka's process; ours answers, goes on, and elects another leader."""
    layout = layout_in(tmp_path)
    our_format(layout)
    with running(layout, our_controller(layout), name="ours") as nodes:
        leader = leader_of(layout)
        victim = next(node for node in layout.ports if node != leader)
        liar = next(node for node in layout.ports if node not in (leader, victim))
        partition = BeginQuorumEpochRequestPartitionData(leader_id=liar, leader_epoch=50)
        request = BeginQuorumEpochRequest(
            cluster_id=layout.cluster_id,
            voter_id=victim,
            topics=[BeginQuorumEpochRequestTopicData(topic_name=TOPIC, partitions=[partition])],
            leader_endpoints=[LeaderEndpoint(name="CONTROLLER", host="nowhere.invalid", port=9093)],
        )
        answer = ask(layout.ports[victim], request, 1, BeginQuorumEpochResponse)
        assert answer.error_code == Error.NONE
        assert answer.topics[0].partitions[0].leader_epoch == 50
        eventually(lambda: committed(layout.ports), "writes are committed again")
        assert set(nodes.stop().values()) == {0}


def committed(ports: dict[int, int]) -> bool:
    """Whether the present leader commits a write, in an epoch after the forged one."""
    leader = active_controller(ports[1])
    return leader in ports and set_client_metrics(ports[leader], "after", metrics="lie") is Error.NONE
