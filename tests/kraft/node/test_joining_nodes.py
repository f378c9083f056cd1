"""Quorums that begin and grow by `kraft.create` and `kraft.join`, and shrink, over TCP and files."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import kraft
from kraft.admin import client
from kraft.config import Config, ConfigError, NodeSettings
from kraft.node import joining
from kraft.node.inbox import Inbox
from kraft.process.hosting import host_raw_log
from kraft.quorum.events import Resign
from kraft.testing import Cluster
from kraft.testing.identities import Authority
from metadata_log.errors import DirectoryError
from support.eventually import pause
from support.kraft.sum_machine import Add, Sum
from support.loopback import free_ports

FAST = {
    "controller.quorum.election.timeout.ms": "150",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "500",
}


def at(node: kraft.Node) -> str:
    return str(node.endpoints[0])


def id_of(node: kraft.Node) -> int:
    return node.status().node_id


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def secured(directory: Path, *, mechanism: str | None) -> NodeSettings:
    """TLS among nodes with certificates of one authority, and perhaps logins."""
    authority = Authority(lambda: directory)
    tls = kraft.Tls(identity=authority.certificate("node").file, authorities=authority.ca_file)
    if mechanism is None:
        return {"settings": FAST, "tls": tls}
    sasl = kraft.Sasl(user="node", password='of "all" nodes', mechanism=mechanism)
    return {"settings": FAST, "tls": tls, "sasl": sasl}


async def test_a_quorum_grows_and_shrinks_and_tells_so(tmp_path: Path) -> None:
    seen: list[tuple[kraft.Voter, ...]] = []
    with trio.fail_after(60):
        async with kraft.create(f"{tmp_path}/1", node_id=1, settings=FAST) as one, trio.open_nursery() as nursery:

            async def follow() -> None:
                async for voters in one.memberships():
                    seen.append(voters)  # noqa: PERF401 (it never ends)

            nursery.start_soon(follow)
            await one.append([b"before"])
            async with kraft.join(at(one), f"{tmp_path}/2", node_id=2, settings=FAST) as two:
                assert two.status().is_voter
                async with kraft.join(f"localhost:1,{at(two)}", f"{tmp_path}/3", node_id=3, settings=FAST) as three:
                    described = await three.describe_quorum()
                    assert [one.id for one in described.voters] == [1, 2, 3]
                    assert described.observers == ()
                    with pytest.raises(kraft.AdminError, match="node 3 votes already"):
                        await three.add_voter()
                    await one.append([b"by three"])
                    await two.remove_voter(1)
                    leader = await three.wait_for_leader()
                    while leader.leader_id not in {2, 3}:
                        await three.wait_for_change()
                        leader = await three.wait_for_leader()
                    await three.remove_voter(2)
                    assert [voter.id for voter in three.voters] == [3]
                    assert await three.append([b"alone"]) > 0
                    with pytest.raises(kraft.RequestRefused, match="Cannot remove voter 3"):
                        await three.remove_voter(3, force=True)
                    async for batch in one.committed():
                        if b"alone" in batch.values:
                            break
                    while [voter.id for voter in one.voters] != [3]:
                        await one.wait_for_change()
            nursery.cancel_scope.cancel()
    assert [tuple(voter.id for voter in voters) for voters in seen] == [(1,), (1, 2), (1, 2, 3), (2, 3), (3,)]


async def test_a_directory_keeps_its_node_and_its_cluster(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with kraft.create(f"{tmp_path}/1", settings=FAST) as one:
            first, server = one.status(), at(one)
            async with kraft.join(server, f"{tmp_path}/2", settings=FAST) as two:
                second = two.status()
                assert second.node_id != first.node_id
                assert second.cluster_id == first.cluster_id
            async with kraft.join(server, f"{tmp_path}/2", settings=FAST) as two:
                assert two.status().directory_id == second.directory_id
                assert two.status().node_id == second.node_id
                await one.remove_voter(second.node_id)
        async with kraft.create(f"{tmp_path}/1", settings=FAST) as one:
            assert one.status().directory_id == first.directory_id
            with pytest.raises(DirectoryError, match=f"belongs to node {second.node_id}, not to node 7"):
                async with kraft.join(at(one), f"{tmp_path}/2", node_id=7, settings=FAST):
                    pytest.fail("it opened the directory of another node")


async def test_the_successor_that_is_named_leads(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with (
            kraft.create(f"{tmp_path}/1", node_id=1, settings=FAST) as one,
            kraft.join(at(one), f"{tmp_path}/2", node_id=2, settings=FAST) as two,
            kraft.join(at(one), f"{tmp_path}/3", node_id=3, settings=FAST) as three,
        ):
            with pytest.raises(kraft.NotLeader):
                await two.transfer_leadership(3)
            with pytest.raises(kraft.NodeError, match="node 4 is no other voter; the other voters are: 2, 3"):
                await one.transfer_leadership(4)
            with pytest.raises(kraft.NodeError, match="node 1 is no other voter"):
                await one.transfer_leadership(1)
            assert (await one.transfer_leadership(3)).leader_id == 3
            while not three.is_active:
                await three.wait_for_change()
            assert (await three.transfer_leadership()).leader_id in {1, 2}


@pytest.mark.parametrize("seed", range(6))
async def test_one_of_five_gets_the_leadership_or_an_error_says_who_has_it(
    seed: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with Cluster(controllers=5, seed=seed, application=host_raw_log) as cluster:
        leader = await cluster.leader()
        await trio.sleep(5)
        wanted = cluster.others(leader)[seed % 4]
        failure = None
        try:
            told = await cluster.node(leader).transfer_leadership(wanted)
        except kraft.TransferFailed as failed:
            failure, told = failed, failed.leader
        if failure is not None:
            assert f"node {told.leader_id} leads epoch {told.epoch}, and not {wanted}: of four or more" in str(failure)
            assert failure.__notes__ == [f"hint: node {told.leader_id} can hand over to it now"]
        assert (told.leader_id == wanted) == (failure is None)
        assert await cluster.leader() == told.leader_id


async def test_a_leader_that_is_elected_again_hands_over_again(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one does not hear of the first resignation, and hears nobody for a while: in some seeds it loses."""
    put, resigned = Inbox.put, 0

    def counted(inbox: Inbox[Any], event: Any) -> None:
        nonlocal resigned
        resigned += isinstance(event, Resign)
        put(inbox, event)

    monkeypatch.setattr(Inbox, "put", counted)
    for seed in range(4):
        async with Cluster(controllers=2, seed=seed, application=host_raw_log) as cluster:
            leader = await cluster.leader()
            (other,) = cluster.others(leader)
            await trio.sleep(5)
            told: list[int] = []

            async def hand_over(node: kraft.Node, wanted: int, told: list[int] = told) -> None:
                told.append((await node.transfer_leadership(wanted)).leader_id)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(hand_over, cluster.node(leader), other)
                cluster.network.partition({leader}, {other})
                await trio.sleep(2.5)
                cluster.network.heal()
            assert told == [other]
            await cluster.leader(among=[other])
    assert resigned >= 4
    async with Cluster(controllers=1, seed=1, application=host_raw_log) as cluster:
        with pytest.raises(kraft.NodeError, match="the only voter"):
            await cluster.node(await cluster.leader()).transfer_leadership()


async def test_a_log_is_opened_and_joined_as_what_it_is(tmp_path: Path) -> None:
    """A raw log, a store and a state machine of one's own are three kinds of logs, and a directory keeps its kind."""
    log, store, machine = (f"{tmp_path}/{name}" for name in ("log", "store", "machine"))
    with trio.fail_after(30):
        async with kraft.create(log, settings=FAST) as one:
            await one.append([b"x"])
            for join in (kraft.join_store(at(one), f"{tmp_path}/j"), kraft.connect_store(at(one))):
                with pytest.raises(ConfigError, match=r"has the log of a raw log \(address\)") as refused:
                    async with join:
                        pytest.fail("a store joined a raw log")
                assert "kraft.join(address, directory)" in refused.value.__notes__[0]
        async with kraft.create_store(store, settings=FAST) as two:
            await two.put("a", b"1")
            with pytest.raises(ConfigError, match="has the log of a state machine") as refused:
                async with kraft.join(at(two.node), f"{tmp_path}/j"):
                    pytest.fail("a raw log joined a store")
            assert "kraft.join_store" in refused.value.__notes__[0]
        async with kraft.create(machine, state_machine=Sum, settings=FAST) as three:
            await three.submit(Add(1))
        assert "j" not in os.listdir(tmp_path)
        opening: list[tuple[str, Any, str]] = [
            (log, lambda: kraft.create_store(log), "kraft.create(directory)"),
            (log, lambda: kraft.create(log, state_machine=Sum), "kraft.create(directory)"),
            (store, lambda: kraft.create(store), "kraft.create_store(directory)"),
            (store, lambda: kraft.create(store, state_machine=Sum), "kraft.create_store(directory)"),
            (machine, lambda: kraft.create(machine), "state_machine=…"),
            (machine, lambda: kraft.create_store(machine), "state_machine=…"),
        ]
        for directory, opened, cure in opening:
            with pytest.raises(DirectoryError, match=r"the directory has the log of .*, and not of a") as wrong:
                async with opened():
                    pytest.fail("it was taken for something else")
            assert wrong.value.where == f"{directory}/meta.properties"
            assert cure in wrong.value.__notes__[0]
        async with kraft.create(log, settings=FAST) as one, kraft.create_store(store, settings=FAST) as two:
            assert (await anext(one.committed())).values == (b"x",)
            assert await two.get("a") is not None


async def test_a_dead_address_is_told_after_a_second_and_named_in_the_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "DELAY_MS", 30)
    (port,) = free_ports(1)
    monkeypatch.setattr(joining, "open_admin", partial(client.open_admin, timeout_ms=100))
    with trio.fail_after(60), pytest.raises(kraft.NoController, match=rf"within 0.1 s: 127.0.0.1:{port}: .*refused"):
        async with kraft.connect_store(f"127.0.0.1:{port}"):
            pytest.fail("nobody is there")
    (told,) = [one for one in caplog.records if one.levelname == "WARNING"]
    assert f"answers at 127.0.0.1:{port} so far: " in told.getMessage()
    assert "refused" in told.getMessage()


async def test_a_store_is_used_without_a_vote(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with kraft.create_store(f"{tmp_path}/1", node_id=1, settings=FAST) as one:
            server = at(one.node)
            await one.put("a", b"1")
            async with (
                kraft.join_store(server, f"{tmp_path}/2", node_id=2, settings=FAST) as two,
                kraft.connect_store(server, settings=FAST) as client,
            ):
                assert client.node.endpoints == ()
                assert not client.node.status().is_voter
                entry = await client.get("a")
                assert entry is not None
                assert entry.value == b"1"
                watch = client.watch("")
                version = await client.put("a", b"2")
                assert (await anext(watch)).revision == version
                await one.node.transfer_leadership(2)
                async with kraft.Lock(client, "it") as held:
                    assert held.is_held
                    assert await two.put("b", b"3") > version
                    found = await client.get("b")
                    assert found is not None
                assert [voter.id for voter in client.node.voters] == [1, 2]


async def test_a_node_is_bound_to_one_address_and_reached_at_another(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with trio.fail_after(60):
        with pytest.raises(ConfigError, match=r"other nodes cannot reach this one at 0\.0\.0\.0:0"):
            async with kraft.create(f"{tmp_path}/1", listen="0.0.0.0:0", settings=FAST):
                pytest.fail("nobody can reach it")
        async with (
            kraft.create(
                f"{tmp_path}/1", listen=f"127.0.0.1:{port}", advertise=f"localhost:{port}", settings=FAST
            ) as one,
            kraft.join(f"127.0.0.1:{port}", f"{tmp_path}/2", settings=FAST) as two,
        ):
            (voter,) = (voter for voter in two.voters if voter.id == id_of(one))
            assert [(at.host, at.port) for at in voter.endpoints.listeners] == [("localhost", port)]


async def test_what_cannot_join_says_why(tmp_path: Path) -> None:
    with trio.fail_after(60):
        for address in ("", "nowhere", "host:99999"):
            with pytest.raises(ConfigError):
                async with kraft.join(address, f"{tmp_path}/2", settings=FAST):
                    pytest.fail("it joined nothing")
        with pytest.raises(ConfigError, match="'here' is not host:port"):
            async with kraft.create(f"{tmp_path}/2", listen="here"):
                pytest.fail("it is bound to nothing")
        (port,) = free_ports(1)
        config = Config.parse(
            f"process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{port}\n"
            f"controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:{port}\nlog.dirs={tmp_path}/1\n"
            "controller.quorum.election.timeout.ms=50\n"
        )
        kraft.format(config, "4L6g3nShT-eMCtK--X86sw")
        async with kraft.open_node(config) as static:
            await static.wait_for_leader()
            with pytest.raises(kraft.RequestRefused, match="UNSUPPORTED_VERSION"):
                async with kraft.join(f"127.0.0.1:{port}", f"{tmp_path}/2", settings=FAST):
                    pytest.fail("it joined a static quorum")
            assert [voter.id for voter in static.voters] == [1]
        with pytest.raises(DirectoryError, match="the directory does not say who votes"):
            async with kraft.create(f"{tmp_path}/1", settings=FAST):
                pytest.fail("it waits for a leader for ever")


async def test_a_misspelt_argument_is_an_error_and_a_misspelt_setting_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    misspelt: Any = {"node_idd": 1}
    with pytest.raises(TypeError, match=r"no argument node_idd; did you mean node_id\?"):
        async with kraft.create(f"{tmp_path}/1", **misspelt):
            pytest.fail("it has a random id")
    async with kraft.create(f"{tmp_path}/1", settings={"log.retention.hour": "1", **FAST}):
        assert "unknown setting log.retention.hour; did you mean log.retention.hours?" in caplog.text


async def test_a_node_that_waits_long_for_a_leader_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        kraft.create(f"{tmp_path}/1", node_id=1, settings=FAST) as one,
        kraft.join(at(one), f"{tmp_path}/2", node_id=2, settings=FAST) as two,
    ):
        assert (await one.transfer_leadership(2)).leader_id == id_of(two)
    monkeypatch.setattr("kraft.node.joining._PATIENCE_S", 0.1)

    async def start() -> None:
        async with kraft.create(f"{tmp_path}/2", node_id=2, settings=FAST):
            pytest.fail("it has no majority")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start)
        with trio.fail_after(60):
            while "node 2 waits for a leader: a majority of the voters must run" not in caplog.text:
                await pause()
        nursery.cancel_scope.cancel()


async def test_a_node_that_stops_ends_what_it_was_asked(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with (
            trio.open_nursery() as nursery,
            kraft.create(f"{tmp_path}/1", node_id=1, settings=FAST) as one,
            kraft.join(at(one), f"{tmp_path}/2", node_id=2, settings=FAST),
        ):

            async def ask() -> None:
                with pytest.raises(kraft.NodeStopped):
                    await one.add_voter(9, "127.0.0.1:1")

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(kraft.NodeStopped):
            await one.describe_quorum()


async def test_a_program_formats_a_dynamic_quorum(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    text = (
        f"process.roles=controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=127.0.0.1:{port}\n"
        f"controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:{port}\n"
        "controller.quorum.election.timeout.ms=50\n"
    )
    first, other = (Config.parse(f"{text}log.dirs={tmp_path}/{name}\n") for name in ("first", "other"))
    assert kraft.format(first, "4L6g3nShT-eMCtK--X86sw", standalone=True)
    assert kraft.format(other, "4L6g3nShT-eMCtK--X86sw")
    with trio.fail_after(60):
        async with kraft.open_node(first) as node:
            assert await node.wait_for_leader()
            assert [voter.id for voter in node.voters] == [1]
        async with kraft.open_node(other) as node:
            assert node.voters == ()
    with pytest.raises(ConfigError, match="static voters"):
        kraft.format(
            Config.parse(text.replace("bootstrap.servers=", "voters=1@")), "4L6g3nShT-eMCtK--X86sw", standalone=True
        )


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS])
async def test_nodes_with_tls_and_logins_join(tmp_path: Path, mechanism: str | None) -> None:
    given = secured(tmp_path, mechanism=mechanism)
    stranger: NodeSettings = {**given, "sasl": kraft.Sasl(user="x", password="y", mechanism=mechanism or "PLAIN")}
    (tmp_path / "other").mkdir()
    forged = kraft.Tls(
        identity=Authority(lambda: tmp_path / "other").certificate("node").file, authorities=given["tls"].authorities
    )
    unsigned: NodeSettings = {**given, "tls": forged}
    with trio.fail_after(60):
        async with (
            kraft.create_store(f"{tmp_path}/1", **given) as one,
            kraft.join_store(at(one.node), f"{tmp_path}/2", **given) as two,
            kraft.connect_store(at(one.node), **given) as client,
        ):
            version = await client.put("a", b"1")
            entry = await two.get("a")
            assert entry is not None
            assert entry.version == version
            with pytest.raises(kraft.NoController):
                async with kraft.connect_store(at(one.node), **stranger):
                    pytest.fail("a stranger came in")
            in_the_clear = NodeSettings(**given)
            del in_the_clear["tls"]
            with pytest.raises(kraft.NoController, match="does its port expect another security protocol"):
                async with kraft.connect_store(at(one.node), **in_the_clear):
                    pytest.fail("it came in without TLS")
            with pytest.raises(kraft.NoController, match="no authority that the peer trusts has signed"):
                async with kraft.connect_store(at(one.node), **unsigned):
                    pytest.fail("a certificate of another authority came in")


async def test_logins_by_scram_need_the_password_and_survive_a_restart_of_all(tmp_path: Path) -> None:
    """Without TLS: the password does not travel. After a restart of all nodes nobody has read the log yet."""
    ports = free_ports(2)
    node = kraft.Sasl(user="node", password="pass", others={"guest": "of honour"}, mechanism="SCRAM-SHA-512")

    def given(port: int, sasl: kraft.Sasl = node) -> NodeSettings:
        return {"settings": FAST, "sasl": sasl, "listen": f"127.0.0.1:{port}"}

    with trio.fail_after(60):
        async with (
            kraft.create_store(f"{tmp_path}/1", **given(ports[0])) as one,
            kraft.join_store(at(one.node), f"{tmp_path}/2", **given(ports[1])),
        ):
            await one.put("a", b"1")
            guest = kraft.Sasl(user="guest", password="of honour", mechanism="SCRAM-SHA-512")
            async with kraft.connect_store(at(one.node), settings=FAST, sasl=guest) as client:
                assert await client.get("a") is not None
            for wrong in (
                kraft.Sasl(user="node", password="wrong", mechanism="SCRAM-SHA-512"),
                kraft.Sasl(user="stranger", password="pass", mechanism="SCRAM-SHA-512"),
                kraft.Sasl(user="node", password="pass", mechanism="SCRAM-SHA-256"),
                kraft.Sasl(user="node", password="pass"),
            ):
                with pytest.raises(kraft.NoController):
                    async with kraft.connect_store(at(one.node), settings=FAST, sasl=wrong):
                        pytest.fail("a stranger came in")

        opened = [trio.Event() for _ in ports]

        async def again(number: int) -> None:
            async with kraft.create_store(f"{tmp_path}/{number + 1}", **given(ports[number])) as store:
                assert await store.get("a") is not None
                opened[number].set()
                for one in opened:
                    await one.wait()

        async with trio.open_nursery() as nursery:
            for number in range(len(ports)):
                nursery.start_soon(again, number)
    for user, mechanism in (("node", "GSSAPI"), ("n\u00f6de", "SCRAM-SHA-256")):
        with pytest.raises(ConfigError, match=r"\(sasl\)"):
            async with kraft.create(f"{tmp_path}/3", sasl=kraft.Sasl(user=user, password="x", mechanism=mechanism)):
                pytest.fail("there is no such login")


async def test_a_directory_joins_no_other_cluster(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with kraft.create(f"{tmp_path}/a", node_id=1, settings=FAST) as of_a:
            async with kraft.join(at(of_a), f"{tmp_path}/2", node_id=2, settings=FAST):
                pass
            async with kraft.create(f"{tmp_path}/b", node_id=1, settings=FAST) as of_b:
                with pytest.raises(DirectoryError, match=r"belongs to the cluster \S+; at \S+ is the cluster "):
                    async with kraft.join(at(of_b), f"{tmp_path}/2", settings=FAST):
                        pass
