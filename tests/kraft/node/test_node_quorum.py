"""A program asks its node about the quorum, and prepares the directory of a node."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import kraft
import kraft.sync
from kraft.process.hosting import host_raw_log
from kraft.testing import Cluster
from metadata_log.errors import DirectoryError
from support.loopback import free_ports

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


async def test_every_node_follows_who_leads(autojump_clock: MockClock) -> None:
    with trio.fail_after(600):
        async with Cluster(controllers=3, seed=1, application=host_raw_log) as cluster:
            first = await cluster.leader()
            watcher = cluster.others(first)[0]
            leaders = cluster.node(watcher).leaders()
            assert (await anext(leaders)).leader_id == first
            await cluster.kill(first)
            second = await cluster.leader(among=cluster.others(first))
            seen = []
            async for leader in leaders:
                seen.append(leader)
                if leader.leader_id == second:
                    break
            assert [one.leader_id for one in seen[:-1]] == [-1] * (len(seen) - 1)
            epochs = [one.epoch for one in seen]
            assert epochs == sorted(epochs)
            await cluster.stop(watcher)
            # A node that leaves may lose its leader, or hand over its own leadership, and hear of it before it ends.
            assert {one.leader_id async for one in leaders} <= {-1, *cluster.others(first)}


async def test_a_node_that_is_cut_off_knows_that_it_has_no_quorum(autojump_clock: MockClock) -> None:
    with trio.fail_after(600):
        async with Cluster(controllers=3, seed=2, application=host_raw_log) as cluster:
            leader = await cluster.leader()
            follower, other = cluster.others(leader)
            await trio.sleep(10)
            assert all(cluster.node(one).has_quorum for one in cluster.ids)
            cluster.network.partition({follower}, {leader, other})
            await trio.sleep(10)
            assert not cluster.node(follower).has_quorum
            assert cluster.node(leader).has_quorum
            cluster.network.heal()
            await trio.sleep(10)
            leader = await cluster.leader()
            cluster.network.partition({leader}, cluster.others(leader))
            await trio.sleep(10)
            assert not cluster.node(leader).has_quorum
            assert all(cluster.node(one).has_quorum for one in cluster.others(leader))


async def test_a_remembered_leader_is_none_until_it_is_heard(autojump_clock: MockClock) -> None:
    with trio.fail_after(600):
        async with Cluster(controllers=3, seed=3, application=host_raw_log) as cluster:
            leader = await cluster.leader()
            follower, other = cluster.others(leader)
            await trio.sleep(5)
            for node_id in cluster.ids:
                await cluster.kill(node_id)
            node = await cluster.restart(follower)
            with trio.move_on_after(20) as waited:
                await node.wait_for_leader()
            assert waited.cancelled_caught, "nobody is alive, and a leader was told"
            await cluster.restart(other)
            found = await node.wait_for_leader()
            assert found.leader_id in (follower, other)
            assert node.has_quorum
            await cluster.stop(follower)
            with pytest.raises(kraft.NodeStopped):
                await node.wait_for_leader()


def test_a_program_is_warned_of_a_cluster_id_that_no_tool_made(tmp_path: Path) -> None:
    text = (
        "process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\n"
        f"controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:1\nlog.dirs={tmp_path}/"
    )
    with pytest.warns(UserWarning, match="cluster id abc is not 16 bytes") as warned:
        assert kraft.format(kraft.Config.parse(f"{text}one\n"), "abc")
    assert [one.filename for one in warned] == [__file__], "it names the line of the program"
    with warnings.catch_warnings(action="error"):
        assert kraft.format(kraft.Config.parse(f"{text}two\n"), CLUSTER_ID)


def test_a_program_formats_the_directory_of_its_node(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    text = (
        f"process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{port}\n"
        f"controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:{port}\nlog.dirs={tmp_path / 'one'}\n"
    )
    config = kraft.Config.parse(text)
    assert kraft.format(config, CLUSTER_ID)
    with kraft.sync.open_store(config) as store:
        store.put("a", b"1")
    with pytest.raises(DirectoryError, match="formatted"):
        kraft.format(config, CLUSTER_ID)
    with pytest.raises(DirectoryError, match="belongs to cluster"):
        kraft.format(config, "AAAAAAAAAAAAAAAAAAAAAA", ignore_formatted=True)
    assert not kraft.format(config, CLUSTER_ID, ignore_formatted=True)
    with kraft.sync.open_store(config) as store:
        entry = store.get("a")
        assert entry is not None
        assert entry.value == b"1"
