"""The admin client finds the active controller, follows it, and says what it cannot do; virtual time throughout."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kraft.admin import (
    AdminClient,
    AdminError,
    ConfigChange,
    NoController,
    Operation,
    QuorumDescription,
    ReplicaDescription,
    RequestRefused,
    ResourceType,
    open_admin,
)
from kraft.admin.discovery import controllers_of
from kraft.admin.voters import add_voter, make_dynamic, missing_without, remove_voter
from kraft.testing import Cluster
from metadata_log.types import Uuid
from transport.faults import Faults
from transport.interface import Endpoint, Listener, Request
from transport.memory import MemoryNetwork, MemoryTransport
from transport.protocol.errors import Error
from transport.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from transport.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from transport.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    ReplicaState,
)
from transport.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from transport.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from transport.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


def metrics(
    name: str, value: str | None, key: str = "interval.ms", operation: Operation = Operation.SET
) -> ConfigChange:
    return ConfigChange(
        resource_type=ResourceType.CLIENT_METRICS, resource_name=name, key=key, value=value, operation=operation
    )


async def test_client_describes_the_quorum(autojump_clock: trio.testing.MockClock) -> None:
    async with Cluster(controllers=3, seed=1) as cluster, cluster.admin() as admin:
        leader = await cluster.leader()
        described = await admin.describe_cluster()
        assert described.controller_id == leader
        assert [node_id for node_id, _ in described.controllers] == [1, 2, 3]
        quorum = await admin.describe_quorum()
        assert quorum.leader_id == leader
        assert {voter.id for voter in quorum.voters} == {1, 2, 3}
        assert quorum.observers == ()


async def test_a_thousand_changes_are_pipelined(autojump_clock: trio.testing.MockClock) -> None:
    """If each waited for the one before it, this would take a thousand round trips of virtual time."""
    async with Cluster(controllers=3, seed=2) as cluster, cluster.admin() as admin:
        await cluster.leader()
        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(admin.alter_configs, [metrics(f"r{number}", str(1000 + number))])
        quorum = await admin.describe_quorum()
        assert quorum.high_watermark >= 1000
        cluster.check()


@pytest.mark.parametrize("seed", [2, 3])
async def test_an_idle_quorum_keeps_its_leader(autojump_clock: trio.testing.MockClock, seed: int) -> None:
    """Controllers register with the active one, which answers once that is committed: were their fetches to stand in a
    queue behind it they would lose their leader. With these seeds they once did.
    """
    async with Cluster(controllers=3, seed=seed, faults=Faults(delay_ms=(1, 30))) as cluster, cluster.admin() as admin:
        await cluster.leader()
        before = await admin.describe_quorum()
        await trio.sleep(60)
        after = await admin.describe_quorum()
        assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)
        assert after.high_watermark > before.high_watermark + 100


async def test_client_finds_the_new_leader_after_a_failover(autojump_clock: trio.testing.MockClock) -> None:
    async with Cluster(controllers=3, seed=3) as cluster, cluster.admin() as admin:
        leader = await cluster.leader()
        await admin.alter_configs([metrics("before", "1000")])
        await cluster.kill(leader)
        await admin.alter_configs([metrics("after", "1000")])
        quorum = await admin.describe_quorum()
        assert quorum.leader_id != leader
        cluster.check()


async def test_a_refusal_names_the_resource_and_is_not_tried_again(autojump_clock: trio.testing.MockClock) -> None:
    async with Cluster(controllers=1, seed=4) as cluster, cluster.admin() as admin:
        await cluster.leader()
        with pytest.raises(RequestRefused, match="bad-one") as caught:
            await admin.alter_configs([metrics("bad-one", "1", key="no.such.key")])
        assert caught.value.error is Error.INVALID_REQUEST


async def test_validate_only_changes_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with Cluster(controllers=1, seed=5) as cluster, cluster.admin() as admin:
        await cluster.leader()
        await admin.alter_configs([metrics("some", "1000")], validate_only=True)
        with pytest.raises(RequestRefused):
            await admin.alter_configs([metrics("some", "1")], validate_only=True)


async def test_without_controllers_the_error_names_the_addresses(autojump_clock: trio.testing.MockClock) -> None:
    transport = MemoryTransport(MemoryNetwork(1), host="me")
    async with open_admin([Endpoint("absent", 1)], transport=transport, timeout_ms=1000) as admin:
        with pytest.raises(NoController, match="within 1 s") as caught:
            await admin.describe_quorum()
    assert "absent:1" in str(caught.value.hint)


async def test_a_controller_in_the_place_of_a_broker_is_named_as_one(autojump_clock: trio.testing.MockClock) -> None:
    """One that does not lead refuses the request in words about replicas of partitions, which say nothing here."""
    async with Cluster(controllers=3, seed=3) as cluster, cluster.admin() as admin:
        follower = admin.addresses[cluster.ids.index(cluster.others(await cluster.leader())[0])]
        transport = MemoryTransport(cluster.network, host="me")
        with pytest.raises(AdminError) as refused:
            await controllers_of([follower], protocol="PLAINTEXT", timeout_ms=1000, transport=transport)
    assert str(refused.value) == f"the brokers name no controllers: {follower} is a controller"
    assert str(refused.value.hint).endswith("or that of a controller with --bootstrap-controller.")


class Heard:
    """Records what a client reports of its delays, with the time."""

    def __init__(self) -> None:
        self.begun = trio.current_time()
        self.heard: list[tuple[str, float]] = []

    def note(self, what: str) -> None:
        self.heard.append((what, round(trio.current_time() - self.begun, 1)))

    async def on_delay(self, admin: AdminClient) -> None:
        self.note("delay")
        await trio.sleep_forever()

    async def on_timeout(self, admin: AdminClient) -> None:
        self.note("timeout")

    def on_answer(self) -> None:
        self.note("answer")


async def test_a_delay_is_reported_after_a_second_and_a_timeout_at_its_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    transport = MemoryTransport(MemoryNetwork(1), host="me")
    heard = Heard()
    async with open_admin([Endpoint("absent", 1)], transport=transport, timeout_ms=3000, delays=heard) as admin:
        for _ in range(2):
            with pytest.raises(NoController):
                await admin.describe_quorum()
    assert heard.heard == [("delay", 1.0), ("timeout", 3.0), ("delay", 4.0), ("timeout", 6.0)]


async def test_an_answer_within_a_second_is_no_delay(autojump_clock: trio.testing.MockClock) -> None:
    async with Cluster(controllers=1, seed=5) as cluster:
        await cluster.leader()
        async with cluster.admin() as other:
            addresses = [place for _, place in (await other.describe_cluster()).controllers]
        heard = Heard()
        transport = MemoryTransport(cluster.network, host="me")
        async with open_admin(addresses, transport=transport, delays=heard) as admin:
            await admin.describe_quorum()
            await trio.sleep(5)
    assert [what for what, _ in heard.heard] == ["answer"]


async def test_an_error_in_the_with_block_is_raised_without_an_exception_group(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Not in an exception group, which no `except` of a caller would match."""
    with pytest.raises(KeyError):
        async with open_admin([Endpoint("x", 1)], transport=MemoryTransport(MemoryNetwork(1), host="me")):
            raise KeyError("the caller's own")


class Scripted:
    """A controller that answers from a test's script, and keeps the received requests."""

    def __init__(self, network: MemoryNetwork, host: str, active: int) -> None:
        self.transport = MemoryTransport(network, host=host)
        self.active = active
        self.asked: list[str] = []
        self.errors: list[Error] = []
        self.is_slow_after_them = False
        self.directories = [Uuid.ZERO, Uuid.ZERO]
        self.writes_voters = False
        self.caught_up_ms: dict[int, list[int]] = {}
        """What is said of each voter from one time to the next, the last for ever."""
        self.observers: list[list[int]] = []

    def deliver(self, request: object) -> None:
        assert isinstance(request, Request)
        self.asked.append(type(request.message).__name__)
        match request.message:
            case DescribeClusterRequest():
                brokers = [DescribeClusterBroker(broker_id=one, host=f"c{one}", port=1) for one in (1, 2)]
                answer = DescribeClusterResponse(
                    endpoint_type=2, cluster_id="x", controller_id=self.active, brokers=brokers
                )
                self.transport.answer(request, answer)
            case IncrementalAlterConfigsRequest() if self.is_slow_after_them and not self.errors:
                pass
            case IncrementalAlterConfigsRequest(resources=resources):
                error = self.errors.pop(0) if self.errors else Error.NONE
                results = [
                    AlterConfigsResourceResponse(
                        error_code=error,
                        error_message=None,
                        resource_type=one.resource_type,
                        resource_name=one.resource_name,
                    )
                    for one in resources
                ]
                self.transport.answer(request, IncrementalAlterConfigsResponse(responses=results))
            case UpdateFeaturesRequest():
                self.transport.answer(request, UpdateFeaturesResponse())
            case AddRaftVoterRequest():
                self.transport.answer(request, AddRaftVoterResponse())
            case RemoveRaftVoterRequest():
                self.transport.answer(request, RemoveRaftVoterResponse())
            case DescribeQuorumRequest():
                observers = self.observers.pop(0) if self.observers else []
                self.transport.answer(
                    request, quorum_led_by(self.active, self.directories, observers, self._caught_up_now())
                )
                self.directories = (
                    [Uuid(bytes([one]) * 16) for one in (1, 2)] if self.writes_voters else self.directories
                )
            case _:
                raise AssertionError(request.message)

    def _caught_up_now(self) -> dict[int, int]:
        return {one: times.pop(0) if len(times) > 1 else times[0] for one, times in self.caught_up_ms.items()}


def replica(node_id: int, directory_id: Uuid, caught_up_ms: int = -1) -> ReplicaState:
    return ReplicaState(replica_id=node_id, replica_directory_id=directory_id, last_caught_up_timestamp=caught_up_ms)


def quorum_led_by(
    leader: int, directories: list[Uuid], observers: list[int], caught_up_ms: dict[int, int]
) -> DescribeQuorumResponse:
    partition = DescribeQuorumResponsePartitionData(
        leader_id=leader,
        current_voters=[replica(one, each, caught_up_ms.get(one, -1)) for one, each in enumerate(directories, 1)],
        observers=[replica(one, Uuid(bytes([one]) * 16)) for one in observers],
    )
    return DescribeQuorumResponse(topics=[DescribeQuorumResponseTopicData(partitions=[partition])])


async def run_scripted(
    nursery: trio.Nursery, network: MemoryNetwork, active: int
) -> tuple[Scripted, Scripted, AdminClient]:
    controllers = [Scripted(network, f"c{one}", active) for one in (1, 2)]
    for one in controllers:
        await nursery.start(one.transport.run, one.deliver)
        one.transport.listen(Listener("CONTROLLER", "", 1))
    transport = MemoryTransport(network, host="me")
    client = AdminClient(transport, [Endpoint("c1", 1)], client_id="t", timeout_ms=5000)
    await nursery.start(transport.run, client.deliver)
    return controllers[0], controllers[1], client


async def test_client_leaves_a_controller_that_is_no_longer_active(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        first, second, client = await run_scripted(nursery, MemoryNetwork(1), active=1)
        first.errors = [Error.NOT_CONTROLLER]
        second.active = 2

        with trio.fail_after(4):
            await client.alter_configs([metrics("x", "1000")])
        # c1 refused; c2, learnt from c1, was asked first the next time and names itself.
        assert "IncrementalAlterConfigsRequest" in first.asked
        assert second.asked == ["DescribeClusterRequest", "IncrementalAlterConfigsRequest"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("writes_voters", [True, False])
async def test_a_quorum_is_dynamic_when_its_voters_have_directories(
    autojump_clock: trio.testing.MockClock, writes_voters: bool
) -> None:
    """Controllers of Kafka 3.9 accept kraft.version 1, and do not write the voters to the log."""
    async with trio.open_nursery() as nursery:
        first, _, client = await run_scripted(nursery, MemoryNetwork(1), active=1)
        first.writes_voters = writes_voters
        if writes_voters:
            await make_dynamic(client)
        else:
            with pytest.raises(AdminError, match="static as before"):
                await make_dynamic(client)
        nursery.cancel_scope.cancel()


async def test_add_voter_waits_until_the_new_leader_knows_the_replica(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        first, _, client = await run_scripted(nursery, MemoryNetwork(1), active=1)
        first.observers = [[], [], [3]]
        added = await add_voter(client, 3, Endpoint("c3", 1))
        assert (added.id, added.directory_id) == (3, Uuid(bytes([3]) * 16))
        with pytest.raises(AdminError, match="node 4 is no observer"):
            await add_voter(client, 4, Endpoint("c4", 1))
        nursery.cancel_scope.cancel()


async def test_a_voter_that_a_majority_needs_is_removed_only_by_force(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        first, _, client = await run_scripted(nursery, MemoryNetwork(1), active=1)
        directory = Uuid(bytes([1]) * 16)
        first.directories = [directory, *(Uuid(bytes([one]) * 16) for one in (2, 3))]
        first.caught_up_ms = {1: [90_000], 2: [89_500], 3: [80_000]}
        with pytest.raises(AdminError, match=r"node 1 is needed: .* do not keep up: 3"):
            await remove_voter(client, 1)
        assert "RemoveRaftVoterRequest" not in first.asked
        assert await remove_voter(client, 1, force=True) == directory
        assert await remove_voter(client, 3) == first.directories[2], "a lost voter can be removed"
        first.caught_up_ms[3] = [-1, -1, 89_000]
        assert await remove_voter(client, 1) == directory, "a new leader has not heard of every voter at once"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("caught_up_ms", "removed", "missing"),
    [
        ((90_000, 89_000, 88_500), 1, ()),
        ((90_000, 89_000, 20_000), 2, (3,)),
        ((90_000, 89_000, -1), 1, (3,)),
        ((90_000, 89_000, 20_000), 3, ()),
        ((90_000, 20_000), 2, ()),
        ((90_000, 20_000), 1, (2,)),
        ((90_000, 89_000, 88_000, 20_000), 3, ()),
        ((90_000, 89_000, 20_000, 20_000), 2, (3, 4)),
        ((-1, -1, -1), 1, ()),
        ((90_000,), 1, ()),
    ],
)
def test_needed_voters_of_a_majority_are_counted(
    caught_up_ms: tuple[int, ...], removed: int, missing: tuple[int, ...]
) -> None:
    """Of the voters 1, 2, … one is removed; a state that a leader of an old release omits counts against no voter."""
    voters = tuple(
        ReplicaDescription(
            id=one, directory_id=Uuid.ZERO, log_end_offset=9, last_fetch_ms=at_ms, last_caught_up_ms=at_ms
        )
        for one, at_ms in enumerate(caught_up_ms, 1)
    )
    quorum = QuorumDescription(leader_id=1, leader_epoch=1, high_watermark=9, voters=voters, observers=())
    assert tuple(one.id for one in missing_without(quorum, removed, Uuid.ZERO)) == missing


async def test_the_active_controllers_error_is_reported_before_those_of_absent_controllers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Each time that the leader answers "not now", the client asks all controllers for the leader, also those down."""
    async with trio.open_nursery() as nursery:
        network = MemoryNetwork(1)
        leader = Scripted(network, "c2", active=2)
        leader.errors, leader.is_slow_after_them = [Error.REQUEST_TIMED_OUT], True
        await nursery.start(leader.transport.run, leader.deliver)
        leader.transport.listen(Listener("CONTROLLER", "", 1))
        transport = MemoryTransport(network, host="me")
        client = AdminClient(transport, [Endpoint("c1", 1), Endpoint("c2", 1)], client_id="t", timeout_ms=1000)
        await nursery.start(transport.run, client.deliver)
        with pytest.raises(NoController, match="c2:1 answered REQUEST_TIMED_OUT"):
            await client.alter_configs([metrics("x", "1000")])
        nursery.cancel_scope.cancel()


async def test_two_resources_go_in_one_request(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        first, second, client = await run_scripted(nursery, MemoryNetwork(1), active=2)
        await client.alter_configs([metrics("a", "1"), metrics("b", "2"), metrics("a", "x", key="metrics")])
        assert first.asked == ["DescribeClusterRequest"]
        assert second.asked == ["IncrementalAlterConfigsRequest"]
        nursery.cancel_scope.cancel()


async def test_a_permanent_error_is_not_retried(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        first, _, client = await run_scripted(nursery, MemoryNetwork(1), active=1)
        first.errors = [Error.CLUSTER_AUTHORIZATION_FAILED]
        began = trio.current_time()
        with pytest.raises(AdminError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await client.alter_configs([metrics("x", "1000")])
        assert trio.current_time() - began < 1
        nursery.cancel_scope.cancel()
