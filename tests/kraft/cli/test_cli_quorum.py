"""`kraft quorum` prints what Kafka's tool prints, and grows and shrinks a quorum."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from kraft.admin import ClusterDescription, QuorumDescription, ReplicaDescription
from kraft.cli.cluster.administration import parse_bootstrap
from kraft.cli.cluster.quorum import replication_json, replication_text, status_json, status_text
from kraft.config import UsageError
from kraft.security.clients import ClientSecurity
from metadata_log.types import Uuid
from support.kraft.cli_serving import serving
from support.kraft.command_line import CLUSTER_ID, run
from support.loopback import free_ports
from transport.interface import Endpoint

KAFKA_STATUS = """\
ClusterId:              c92P2-zHd3OC2pYwL82DeQ
LeaderId:               1
LeaderEpoch:            13
HighWatermark:          5313
MaxFollowerLag:         0
MaxFollowerLagTimeMs:   0
CurrentVoters:          [{"id": 1, "endpoints": ["CONTROLLER://127.0.0.1:21001"]}, \
{"id": 2, "endpoints": ["CONTROLLER://127.0.0.1:21002"]}, {"id": 3, "endpoints": ["CONTROLLER://127.0.0.1:21003"]}]
CurrentObservers:       [{"id": 102, "directoryId": "holE1N5KPOiK7eg5xxet1Q"}, \
{"id": 101, "directoryId": "8riq9ydYGGlAB8Q4GKASkg"}]"""

KAFKA_REPLICATION = """\
NodeId\tDirectoryId           \tLogEndOffset\tLag\tLastFetchTimestamp\tLastCaughtUpTimestamp\tStatus  \t
1     \tAAAAAAAAAAAAAAAAAAAAAA\t5315        \t0  \t1795249078009     \t1795249078009        \tLeader  \t
2     \tAAAAAAAAAAAAAAAAAAAAAA\t5315        \t0  \t1795249077776     \t1795249077776        \tFollower\t
3     \tAAAAAAAAAAAAAAAAAAAAAA\t5315        \t0  \t1795249077771     \t1795249077771        \tFollower\t
102   \tholE1N5KPOiK7eg5xxet1Q\t5315        \t0  \t1795249077772     \t1795249077772        \tObserver\t
101   \t8riq9ydYGGlAB8Q4GKASkg\t5315        \t0  \t1795249077771     \t1795249077771        \tObserver\t"""


def replica(node_id: int, at_ms: int, directory: str = "AAAAAAAAAAAAAAAAAAAAAA", end: int = 5315) -> ReplicaDescription:
    listeners = (("CONTROLLER", Endpoint("127.0.0.1", 21000 + node_id)),) if node_id < 100 else ()
    return ReplicaDescription(
        id=node_id,
        directory_id=Uuid.parse(directory),
        log_end_offset=end,
        last_fetch_ms=at_ms,
        last_caught_up_ms=at_ms,
        listeners=listeners,
    )


def quorum(*voters: ReplicaDescription, leader: int = 1) -> QuorumDescription:
    observers = (
        replica(102, 1795249077772, "holE1N5KPOiK7eg5xxet1Q"),
        replica(101, 1795249077771, "8riq9ydYGGlAB8Q4GKASkg"),
    )
    return QuorumDescription(leader_id=leader, leader_epoch=13, high_watermark=5313, voters=voters, observers=observers)


REAL = quorum(replica(1, 1795249078009), replica(2, 1795249077776), replica(3, 1795249077771))
CLUSTER = ClusterDescription(cluster_id="c92P2-zHd3OC2pYwL82DeQ", controller_id=1, controllers=())


def test_status_text_equals_kafka_metadata_quorums() -> None:
    assert status_text((CLUSTER, REAL)) == KAFKA_STATUS


def test_replication_table_equals_kafka_metadata_quorums() -> None:
    assert replication_text(REAL) == KAFKA_REPLICATION


@pytest.mark.parametrize(
    ("voters", "leader", "lag", "lag_ms"),
    [
        # Of equals the first voter counts, as in Kafka's tool, even where that is not the leader.
        ((replica(1, 900), replica(2, 1000)), 2, 0, 100),
        ((replica(1, 900, end=5000), replica(2, 1000)), 2, 315, 100),
        ((replica(1, 1000), replica(2, -1, end=-1)), 1, 5316, -1),
    ],
)
def test_lags_are_computed_as_kafkas_tool_does(
    voters: tuple[ReplicaDescription, ...], leader: int, lag: int, lag_ms: int
) -> None:
    lines = status_text((CLUSTER, quorum(*voters, leader=leader))).splitlines()
    assert lines[4].split() == ["MaxFollowerLag:", str(lag)]
    assert lines[5].split() == ["MaxFollowerLagTimeMs:", str(lag_ms)]


def test_human_readable_times_are_durations() -> None:
    text = replication_text(quorum(replica(1, 1000), replica(2, -1)), now_ms=1500)
    assert "500 ms ago" in text.splitlines()[1]
    assert "-1" in text.splitlines()[2]


def test_bootstrap_addresses() -> None:
    assert parse_bootstrap("a:1, [::1]:2") == (Endpoint("a", 1), Endpoint("::1", 2))
    for wrong in ("a", "a:0", "a:70000", ",", ":1"):
        with pytest.raises(UsageError):
            parse_bootstrap(wrong)


def test_bootstrap_addresses_of_listeners() -> None:
    """A name before the address is Kafka's habit. The protocol of a name is not ignored, as Kafka's tools do."""
    assert parse_bootstrap("CONTROLLER://a:1,plaintext://[::1]:2") == (Endpoint("a", 1), Endpoint("::1", 2))
    with pytest.raises(UsageError, match=r"SSL needs security\.protocol=SSL in the file of --command-config"):
        parse_bootstrap("a:1,SSL://b:2")
    assert parse_bootstrap("ssl://b:2", ClientSecurity("SSL")) == (Endpoint("b", 2),)
    for name in ("SASL_SSL", "sasl_plaintext"):
        with pytest.raises(UsageError, match=f"{name.upper()} needs security"):
            parse_bootstrap(f"a:1,{name}://b:2")
    for wrong in ("CONTROLLER://:1", "CONTROLLER://a:0", "://a:1", "CONTROLLER://a"):
        with pytest.raises(UsageError):
            parse_bootstrap(wrong)


def test_an_address_without_a_listener_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    done = run(capsys, "quorum", "status", "--bootstrap-controller", address, "--timeout", "0.2")
    assert done.code == 1
    assert "no active controller answered within 0.2 s" in done.err
    assert address in done.err
    assert done.out == ""


def test_json_output_has_the_values_of_the_text() -> None:
    status = json.loads(status_json((CLUSTER, REAL)))
    assert (status["highWatermark"], status["currentVoters"][0]["id"]) == (5313, 1)
    rows = json.loads(replication_json((CLUSTER, REAL)))["replicas"]
    assert [row["status"] for row in rows] == ["Leader", "Follower", "Follower", "Observer", "Observer"]


# `kraft quorum add | remove`: a quorum of one node grows and shrinks, over TCP.


def dynamic_config(directory: Path, node_id: int, port: int, first_port: int) -> Path:
    directory.mkdir()
    path = directory / "node.properties"
    path.write_text(
        f"process.roles=controller\nnode.id={node_id}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://127.0.0.1:{port}\nlog.dirs={directory / 'log'}\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{first_port}\n"
    )
    return path


def test_the_only_voter_is_replaced_by_another_node(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first_port, second_port = free_ports(2)
    first = dynamic_config(tmp_path / "1", 1, first_port, first_port)
    second = dynamic_config(tmp_path / "2", 2, second_port, first_port)
    for config, how in ((first, "--standalone"), (second, "--no-initial-controllers")):
        assert run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID, how).code == 0
    everywhere = ("--bootstrap-controller", f"127.0.0.1:{first_port},127.0.0.1:{second_port}", "--timeout", "30")
    with ExitStack() as running:
        running.enter_context(serving(first)).said("to=Leader")
        joined = running.enter_context(serving(second))
        joined.said("to=Follower")
        stranger = run(capsys, "quorum", "add", "3", *everywhere)
        assert stranger.code == 1
        assert "node 3 is no observer" in stranger.err
        added = run(capsys, "quorum", "add", "2", "--json", *everywhere)
        assert added.code == 0, added.err
        facts = json.loads(added.out)["added"]
        assert facts["endpoint"] == f"127.0.0.1:{second_port}"
        again = run(capsys, "quorum", "add", f"2@127.0.0.1:{second_port}", *everywhere)
        assert again.code == 1
        assert "node 2 votes already" in again.err
        removed = run(capsys, "quorum", "remove", "1", *everywhere)
        assert removed.code == 0, removed.err
        assert "Node 1 with directory" in removed.out
        joined.said("to=Leader")
        done = run(capsys, "quorum", "status", "--json", *everywhere)
        status = json.loads(done.out)
        assert status["currentVoters"] == [
            {"id": 2, "directoryId": facts["directoryId"], "endpoints": [f"CONTROLLER://127.0.0.1:{second_port}"]}
        ]
