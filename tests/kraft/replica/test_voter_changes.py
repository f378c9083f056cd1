"""Voters come and go in dynamic quorums (KIP-853), formatted by us and begun by Apache Kafka."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from kraft.process.hosting import host_controller
from kraft.process.process import Process
from kraft.quorum.values import QuorumConfig, VersionRange
from kraft.quorum.voter_history import DYNAMIC, STATIC
from kraft.quorum.voters import Voter
from loaded_replica import batches_of, controller, loaded_disk
from metadata_log.memory_disk import MemoryDisk
from metadata_log.serde import Message, encode, schema_of
from metadata_log.types import Uuid
from support.kraft.replica_net import CLUSTER_ID, Net
from support.kraft.simulated_quorum import (
    NO_VOTERS,
    add,
    agree_on,
    describe,
    directory_id,
    dynamic_disk,
    dynamic_net,
    error_of,
    remove,
)
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages import AddRaftVoterResponse, EnvelopeRequest, EnvelopeResponse, UpdateRaftVoterRequest
from transport.protocol.messages.add_raft_voter import Listener
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from transport.protocol.messages.principal import DefaultPrincipalData
from transport.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from transport.protocol.messages.update_raft_voter import KRaftVersionFeature
from transport.protocol.messages.update_raft_voter import Listener as UpdatedListener

JOINING = QuorumConfig(append_linger_ms=0, auto_join=True)


def through_a_broker(net: Net, request: Message, version: int) -> EnvelopeResponse:
    """The answer to a broker that forwards a client's request."""
    api_key = schema_of(type(request)).api_key
    assert api_key is not None
    envelope = EnvelopeRequest(
        request_data=encode_request(api_key, version, 5, "client", request),
        request_principal=b"\0\0" + encode(DefaultPrincipalData(type="User", name="ANONYMOUS"), 0),
        client_host_address=b"\x7f\0\0\1",
    )
    answer = net.ask(net.leader, envelope)
    assert isinstance(answer, EnvelopeResponse)
    return answer


def test_voters_grow_from_one_to_three_and_shrink_to_another_one() -> None:
    net = dynamic_net(1, joining=2)
    net.elect()
    net.advance(1000)
    for node in (2, 3):
        assert error_of(net, add(net, node)) == Error.NONE
        net.advance(600)
    agree_on(net, 1, 2, 3)
    net.kill(1)
    survivor = net.elect()
    assert survivor in (2, 3)
    net.submit(survivor, b"after")
    net.start(1)
    net.advance(1000)
    for node in (1, survivor):
        key = net.processes[node].replica.core.local
        assert error_of(net, remove(node, key.directory_id)) == Error.NONE
        net.advance(3000)
    last = ({2, 3} - {survivor}).pop()
    agree_on(net, last)
    assert net.leader == last
    net.submit(last, b"alone")
    net.advance(600)
    assert len({net.log_of(node) for node in net.processes}) == 1


def test_a_removed_voter_is_described_as_an_observer_with_its_progress() -> None:
    net = dynamic_net(3)
    leader = net.elect()
    other = next(node for node in net.processes if node != leader)
    assert error_of(net, remove(other)) == Error.NONE
    partition = describe(net).topics[0].partitions[0]
    assert other not in [one.replica_id for one in partition.current_voters]
    assert [(one.replica_id, one.replica_directory_id) for one in partition.observers] == [(other, directory_id(other))]


def test_auto_join_adds_a_new_removed_or_wiped_node() -> None:
    net = dynamic_net(3, joining=1, quorum=JOINING)
    net.elect()
    agree_on(net, 1, 2, 3, 4)
    former = net.processes[4].replica.core.local
    assert error_of(net, remove(4, former.directory_id)) == Error.NONE
    agree_on(net, 1, 2, 3, 4)
    net.kill(4)
    net.disks[4] = dynamic_disk(4, None, seed=2)
    net.start(4)
    assert net.processes[4].replica.core.local != former
    net.until(lambda: net.processes[4].replica.core.is_voter)
    agree_on(net, 1, 2, 3, 4)
    assert former not in net.processes[net.leader].replica.core.voters.keys


def test_every_refusal_of_an_addition_has_kafkas_error() -> None:
    net = dynamic_net(3, joining=1)
    net.elect()
    net.advance(1000)
    follower = next(node for node in (1, 2, 3) if node != net.leader)
    assert error_of(net, add(net, 4), follower) == Error.NOT_LEADER_OR_FOLLOWER
    assert error_of(net, add(net, 4, cluster_id="another")) == Error.INCONSISTENT_CLUSTER_ID
    assert error_of(net, add(net, 4, voter_id=-1)) == Error.INVALID_REQUEST
    assert error_of(net, add(net, 4, voter_directory_id=Uuid.ZERO)) == Error.INVALID_REQUEST
    assert error_of(net, add(net, 4, listeners=[Listener("OTHER", "n4", 9093)])) == Error.INVALID_REQUEST
    assert error_of(net, add(net, 2)) == Error.DUPLICATE_VOTER
    assert error_of(net, add(net, 9)) == Error.REQUEST_TIMED_OUT
    assert error_of(net, add(net, 4, voter_directory_id=directory_id(8))) == Error.REQUEST_TIMED_OUT
    assert error_of(net, add(net, 4, listeners=[Listener("controller", "n4", 9093)])) == Error.NONE


def test_every_refusal_of_a_removal_has_kafkas_error() -> None:
    net = dynamic_net(1)
    net.elect()
    assert error_of(net, remove(1)) == Error.VOTER_NOT_FOUND
    assert error_of(net, remove(1, directory_id(2))) == Error.VOTER_NOT_FOUND
    assert error_of(net, remove(1, Uuid.ZERO)) == Error.INVALID_REQUEST
    static = Net(1)
    static.elect()
    assert error_of(static, remove(1, directory_id(1))) == Error.UNSUPPORTED_VERSION


def test_an_uncommitted_voter_change_is_undone_by_the_next_leader() -> None:
    net = dynamic_net(3)
    leader = net.elect()
    others = {1, 2, 3} - {leader}
    net.cut.add(leader)
    asked = net.request(leader, remove(min(others)))
    net.advance(1)
    assert net.processes[leader].replica.core.voters.ids == tuple(sorted({1, 2, 3} - {min(others)}))
    net.until(lambda: net.leader in others)
    assert asked in net.answers
    net.cut.clear()
    agree_on(net, 1, 2, 3)


@pytest.mark.parametrize("operations", range(0, 40, 3))
def test_a_power_failure_during_a_voter_change_leaves_one_voter_set(operations: int) -> None:
    net = dynamic_net(1, joining=1)
    net.elect()
    net.advance(1000)
    net.request(1, add(net, 2))
    for _ in range(operations):
        net.once()
    for node in (1, 2):
        net.kill(node)
    for node in (1, 2):
        net.start(node)
    net.until(lambda: net.leader != 0)
    net.advance(3000)
    first, second = (net.processes[node].replica.core for node in (1, 2))
    assert first.voters == second.voters
    assert net.log_of(1) == net.log_of(2)


def test_a_broker_forwards_voter_changes_in_envelopes() -> None:
    """The answer waits for the commit, as that to a client of the controllers does, and comes in its envelope."""
    net = dynamic_net(3, joining=1, application=host_controller)
    net.elect()
    net.advance(1000)
    answer = through_a_broker(net, add(net, 4), 1)
    assert answer.error_code == Error.NONE
    assert answer.response_data is not None
    added = decode_response(ApiKey.ADD_RAFT_VOTER, 1, answer.response_data)[1]
    assert isinstance(added, AddRaftVoterResponse)
    assert added.error_code == Error.NONE
    agree_on(net, 1, 2, 3, 4)
    refused = through_a_broker(net, add(net, 4, cluster_id="another"), 1)
    assert refused.response_data is not None
    foreign = decode_response(ApiKey.ADD_RAFT_VOTER, 1, refused.response_data)[1]
    assert isinstance(foreign, AddRaftVoterResponse)
    assert foreign.error_code == Error.INCONSISTENT_CLUSTER_ID


def test_every_refusal_of_an_update_has_kafkas_error() -> None:
    net = dynamic_net(3)
    leader = net.elect()
    epoch = net.processes[leader].replica.core.epoch
    known: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "current_leader_epoch": epoch,
        "voter_id": 1,
        "voter_directory_id": directory_id(1),
        "listeners": [UpdatedListener("CONTROLLER", "n1", 9093)],
        "kraft_version_feature": KRaftVersionFeature(0, 1),
    }
    for changed, error in (
        ({"cluster_id": "another"}, Error.INCONSISTENT_CLUSTER_ID),
        ({"current_leader_epoch": epoch - 1}, Error.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": epoch + 1}, Error.UNKNOWN_LEADER_EPOCH),
        ({"listeners": []}, Error.INVALID_REQUEST),
        ({"kraft_version_feature": KRaftVersionFeature(2, 1)}, Error.INVALID_REQUEST),
        ({"kraft_version_feature": KRaftVersionFeature(0, 0)}, Error.INVALID_REQUEST),
        ({"voter_directory_id": directory_id(2)}, Error.VOTER_NOT_FOUND),
        ({"voter_id": 7}, Error.VOTER_NOT_FOUND),
        ({}, Error.NONE),
    ):
        assert error_of(net, UpdateRaftVoterRequest(**{**known, **changed})) == error, changed
    assert net.processes[leader].replica.core.history.voters_offset == 2, "nothing has changed, so nothing was written"


def test_a_leader_changes_no_voter_before_a_commit_in_its_own_epoch() -> None:
    """Otherwise two leaders could each have a majority of another set (2015 flaw of Raft's single-server changes)."""
    net = dynamic_net(3)
    first = net.elect()
    net.kill(first)
    while not net.leader:
        if not net.once():
            net.now_ms = max(net.now_ms, min(one.deadline_ms() for one in net.processes.values()))
    second = net.leader
    net.cut |= {1, 2, 3} - {second}
    offset = net.processes[second].replica.core.history.voters_offset
    assert error_of(net, remove(first)) == Error.REQUEST_TIMED_OUT
    assert net.processes[second].replica.core.history.voters_offset == offset
    net.cut.clear()
    net.elect()
    assert error_of(net, remove(first)) == Error.NONE


def raise_kraft_version(level: int = 1, *, validate_only: bool = False) -> UpdateFeaturesRequest:
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=1)
    return UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only)


def update_error(net: Net, request: UpdateFeaturesRequest) -> Error:
    answer = net.ask(net.leader, request)
    assert isinstance(answer, UpdateFeaturesResponse)
    return Error(answer.error_code)


def test_a_leader_that_resigns_when_it_raises_kraft_version_names_no_success() -> None:
    """Its time without a majority was over, and no Tick had come since."""
    net = Net(3, application=host_controller)
    leader = net.elect()
    net.until(lambda: net.processes[leader].replica.is_active)
    net.advance(4000)
    net.cut |= {1, 2, 3} - {leader}
    net.advance(1000)
    net.now_ms += 10_000
    asked = net.request(leader, raise_kraft_version())
    net.queue.popleft()()
    assert not net.processes[leader].replica.core.is_leader
    answer = net.answers[asked]
    assert isinstance(answer, UpdateFeaturesResponse)
    assert answer.error_code == Error.NOT_CONTROLLER


def test_kraft_version_is_raised_once_every_voter_reported_its_directory() -> None:
    net = Net(3, application=host_controller)
    leader = net.elect()
    net.until(lambda: net.processes[leader].replica.is_active)
    net.advance(500)
    assert update_error(net, raise_kraft_version()) == Error.INVALID_UPDATE_VERSION, "no voter has reported yet"
    net.advance(3000)
    assert update_error(net, raise_kraft_version(validate_only=True)) == Error.NONE
    assert net.processes[leader].replica.core.history.kraft_version == STATIC
    assert update_error(net, raise_kraft_version()) == Error.NONE
    assert update_error(net, raise_kraft_version()) == Error.NONE, "it is so already"
    assert update_error(net, raise_kraft_version(0)) == Error.INVALID_UPDATE_VERSION
    agree_on(net, 1, 2, 3)
    for node, replica in net.processes.items():
        assert replica.replica.core.voters.find(node) == voter_of(replica)
    other = min({1, 2, 3} - {leader})
    assert error_of(net, remove(other, net.processes[other].replica.core.local.directory_id)) == Error.NONE
    net.kill(leader)
    net.start(leader)
    agree_on(net, *sorted({1, 2, 3} - {other}))


def test_before_the_upgrade_a_replaced_disk_reports_again_and_a_late_report_of_the_former_one_is_refused() -> None:
    """Kafka takes both reports, in the order in which they come (`VoterSet.updateVoterIgnoringDirectoryId`)."""
    net = Net(3, application=host_controller)
    leader = net.elect()
    net.until(lambda: net.processes[leader].replica.is_active)
    net.advance(3500)
    core = net.processes[leader].replica.core
    other = min({1, 2, 3} - {leader})
    former, present = net.processes[other].replica.core.local.directory_id, directory_id(9)
    report: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "current_leader_epoch": core.epoch,
        "voter_id": other,
        "listeners": [UpdatedListener("CONTROLLER", f"n{other}", 9093)],
        "kraft_version_feature": KRaftVersionFeature(0, 1),
    }
    assert error_of(net, UpdateRaftVoterRequest(**report, voter_directory_id=present)) == Error.VOTER_NOT_FOUND
    net.kill(other)
    part = FetchPartition(
        current_leader_epoch=core.epoch,
        fetch_offset=core.log.end_offset,
        last_fetched_epoch=core.log.last_epoch,
        replica_directory_id=present,
    )
    topics = [FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[part])]
    net.request(
        leader, FetchRequest(replica_state=ReplicaState(replica_id=other), topics=topics, cluster_id=CLUSTER_ID)
    )
    net.until(lambda: not net.queue)
    assert error_of(net, UpdateRaftVoterRequest(**report, voter_directory_id=present)) == Error.NONE
    assert error_of(net, UpdateRaftVoterRequest(**report, voter_directory_id=former)) == Error.VOTER_NOT_FOUND
    assert update_error(net, raise_kraft_version()) == Error.NONE
    entry = core.voters.find(other)
    assert entry is not None
    assert entry.key.directory_id == present


def test_a_node_with_only_lost_voters_in_its_log_asks_configured_voters() -> None:
    """As in Kafka. Found by the simulator: a node asked only the voters of its log."""
    net = Net(3, application=host_controller)
    first = net.elect()
    net.advance(3500)
    assert update_error(net, raise_kraft_version()) == Error.NONE
    second, third = sorted({1, 2, 3} - {first})
    for node in (second, third):
        assert error_of(net, remove(node, net.processes[node].replica.core.local.directory_id)) == Error.NONE
    agree_on(net, first)
    net.kill(third)
    assert error_of(net, add(net, second)) == Error.NONE
    assert error_of(net, remove(first, net.processes[first].replica.core.local.directory_id)) == Error.NONE
    net.until(lambda: net.leader == second)
    net.kill(first)
    net.start(third)
    assert net.processes[third].replica.core.voters.ids == (first,)
    net.until(lambda: net.log_of(third) == net.log_of(second))


def voter_of(replica: Process) -> Voter:
    return Voter(replica.replica.core.local, replica.options.replica.endpoints, VersionRange(0, 1))


def test_a_self_removed_voter_is_elected_to_commit_its_removal() -> None:
    """Found by the simulator: only that voter has the record, so the other can neither commit it nor be elected."""
    net = dynamic_net(2)
    leader = net.elect()
    other = ({1, 2} - {leader}).pop()
    net.cut.add(other)
    net.request(leader, remove(leader))
    net.until(lambda: net.leader == 0)
    assert net.processes[leader].replica.core.voters.ids == (other,)
    net.cut.clear()
    agree_on(net, other)
    net.until(lambda: net.leader == other)
    net.kill(leader)
    net.submit(other, b"alone")
    net.start(leader)
    net.advance(10_000)
    assert net.leader == other, "a removed voter never campaigns again, restarted or not"


def test_a_removed_voter_campaigns_if_only_its_log_has_the_removal() -> None:
    """Found by the simulator: the removed voter's log is longer than those of the two others, which need its vote."""
    net = dynamic_net(4)
    leader = net.elect()
    removed, *others = sorted({1, 2, 3, 4} - {leader})
    net.cut.update(others)
    net.request(leader, remove(removed, net.processes[removed].replica.core.local.directory_id))
    net.until(
        lambda: not net.processes[removed].replica.core.voters.contains(net.processes[removed].replica.core.local)
    )
    net.kill(leader)
    net.cut.clear()
    net.until(lambda: net.leader in others)
    assert net.processes[net.leader].replica.core.voters.ids == tuple(sorted({leader, *others}))
    assert not net.processes[removed].replica.core.voters.contains(net.processes[removed].replica.core.local)


def test_a_voter_without_the_record_of_its_addition_grants_pre_votes() -> None:
    """Found by the simulator: the voter, an observer by its own log, had heard the lost leader. As Kafka's, it refused
    pre-votes ever after, without which no node can be elected.
    """
    net = dynamic_net(2, joining=1)
    first = net.elect()
    second = ({1, 2} - {first}).pop()
    net.advance(1000)
    net.unreachable = {(3, f"n{first}")}
    net.advance(600)
    net.request(first, add(net, 3))
    net.until(lambda: net.processes[second].replica.core.voters.contains(net.processes[3].replica.core.local))
    assert net.leader == first
    net.kill(first)
    assert not net.processes[3].replica.core.is_voter
    net.until(lambda: net.leader == second)
    net.until(lambda: net.processes[3].replica.core.is_voter)


def test_a_node_without_the_leaders_endpoint_learns_and_follows() -> None:
    """Found by the simulator: a node that joins and restarts before its first record remembers only the leader's id."""
    net = dynamic_net(1, joining=1)
    net.kill(2)
    net.elect()
    net.start(2)
    while net.processes[2].replica.core.leader.leader_id != 1:
        assert net.once()
    assert net.processes[2].replica.core.log.end_offset == 0
    net.kill(2)
    net.start(2)
    assert (net.processes[2].replica.core.state_name, net.processes[2].replica.core.leader.leader_id) == (
        "Unattached",
        1,
    )
    net.until(lambda: net.log_of(2) == net.log_of(1))
    assert net.processes[2].replica.core.state_name == "Follower"


# Dynamic quorums (KIP-853), in memory: formatted by us, and begun by Apache Kafka.


@cache
def dynamic3() -> dict[int, MemoryDisk]:
    return {node: loaded_disk("clusters", f"dynamic3/nodes/c{node}") for node in (1, 2, 3, 4)}


def real_dynamic_net(**changes: Any) -> Net:
    disks = {node: disk.fork() for node, disk in dynamic3().items()}
    return Net(4, application=host_controller, disks=disks, cluster_id=None, voters=NO_VOTERS, **changes)


def test_logs_of_kafkas_dynamic_quorum_continue_under_our_nodes() -> None:
    """Nothing that was committed is lost, and the new leader writes down where it listens now."""
    before = {node: batches_of(disk) for node, disk in dynamic3().items()}
    net = real_dynamic_net()
    assert {replica.replica.core.history.kraft_version for replica in net.processes.values()} == {DYNAMIC}
    voting = net.processes[1].replica.core.voters
    leader = net.elect()
    assert leader in voting.ids
    net.until(lambda: controller(net, leader).controller.is_active)
    core = net.processes[leader].replica.core
    own = core.voters.find(leader)
    assert own is not None
    assert own.endpoints.listeners[0].host == f"n{leader}"
    assert core.voters.keys == voting.keys
    net.advance(1500)
    for node, replica in net.processes.items():
        assert replica.replica.core.voters == core.voters, node
        assert replica.replica.core.is_voter == (node in voting.ids), node
    held = {
        offset: data
        for batches in before.values()
        for offset, data in batches.items()
        if sum(other.get(offset) == data for other in before.values()) >= voting.majority
    }
    start = core.log.start_offset
    assert {at: data for at, data in held.items() if at >= start}.items() <= batches_of(net.disks[leader]).items()
