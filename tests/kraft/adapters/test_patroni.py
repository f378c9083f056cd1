"""The DCS module of Patroni: its tests of its Raft module, on a real store, and two PostgreSQL that fail over."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patroni.dcs import Cluster, dcs_modules, get_dcs
from patroni.file_perm import pg_perm
from patroni.postgresql.mpp import get_mpp

import kraft.sync
from kraft.adapters.patroni import MODULE, Kraft, KraftError, register
from kraft.store import Lease
from store_quorums import client_url

os.umask(pg_perm.orig_umask)  # Patroni sets another one as it is imported, here for all tests of the process.

Make = Callable[..., Kraft]


@pytest.fixture
def make(files: list[Path], store: kraft.sync.Store, request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes a DCS as Patroni does, each test with a cluster of its own."""
    register()
    made: list[Kraft] = []

    def make(name: str = "pg", **more: Any) -> Kraft:
        kraft_dcs = get_dcs(
            {
                **{"ttl": 30, "scope": request.node.name, "name": name, "retry_timeout": 10, "loop_wait": 10},
                **{"kraft": {"url": client_url(files)}, **more},
            }
        )
        assert isinstance(kraft_dcs, Kraft)
        made.append(kraft_dcs)
        return kraft_dcs

    yield make
    for each in made:
        each.close()


def test_patroni_finds_the_module_and_its_other_ones() -> None:
    register()
    register()
    modules = dcs_modules()
    assert modules.count(MODULE) == 1
    assert "patroni.dcs.raft" in modules


_SPAWNING = """
import multiprocessing, runpy, sys
import patroni.__main__

def main():
    # As `patroni.postgresql.postmaster` starts PostgreSQL.
    said = "import sys; print(sorted({one.partition('.')[0] for one in sys.modules} & {'kraft', 'patroni', 'trio'}))"
    started = multiprocessing.get_context("spawn").Process(target=exec, args=(said,))
    started.start()
    started.join()

patroni.__main__.main = main
runpy.run_module("kraft.adapters.patroni", run_name="__main__", alter_sys=True)
"""


def test_what_patroni_spawns_does_not_load_the_node_again() -> None:
    done = subprocess.run([sys.executable, "-c", _SPAWNING], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_what_patroni_asks_of_its_raft_module(make: Make, store: kraft.sync.Store) -> None:
    """`TestRaft.test_raft` of Patroni, line by line, with our store where it takes that of its module."""
    dcs = make(citus={"group": 0, "database": "postgres"})
    dcs.reload_config({"retry_timeout": 20, "ttl": 60, "loop_wait": 10})
    store.put(f"{dcs.members_path}legacy", b'{"version":"2.0.0"}')
    assert dcs.touch_member("")  # type: ignore[arg-type]  # a text, as in the test of Patroni
    assert dcs.initialize()
    assert dcs.cancel_initialization()
    assert dcs.set_config_value("{}")
    assert dcs.write_sync_state("foo", "bar", 0)
    assert not dcs.write_sync_state("foo", "bar", 0, 1)
    dcs._mpp = get_mpp({"citus": {"group": 1, "database": "postgres"}})
    assert dcs.manual_failover("foo", "bar")
    dcs._mpp = get_mpp({"citus": {"group": 0, "database": "postgres"}})
    assert dcs.take_leader()
    cluster = dcs.get_cluster()
    assert isinstance(cluster, Cluster)
    assert isinstance(cluster.workers[1], Cluster)
    assert dcs.delete_leader(cluster.leader)
    store.put(dcs.status_path, b'{"optime":1234567,"slots":{"ls":12345},"retain_slots":["postgresql0"]}')
    dcs.get_cluster()
    assert dcs.update_leader(cluster, 1, failsafe={"foo": "bat"})
    store.put(dcs.failsafe_path, b'{"foo"}')
    store.put(dcs.status_path, b"{")
    dcs.get_mpp_coordinator()
    assert dcs.delete_sync_state()
    assert dcs.set_history_value("")
    assert dcs.delete_cluster()
    dcs._mpp = get_mpp({"citus": {"group": 1, "database": "postgres"}})
    assert dcs.delete_cluster()
    dcs._mpp = get_mpp({})
    assert dcs.get_cluster().is_unlocked()
    dcs.watch(None, 0.001)


def test_what_was_written_is_read(make: Make) -> None:
    dcs = make()
    assert dcs.get_cluster().is_empty()
    assert dcs.initialize()
    assert not dcs.initialize()
    assert dcs.initialize(create_new=False, sysid="77")
    assert dcs.set_config_value('{"ttl":30}')
    assert dcs.set_history_value("[]")
    assert dcs.touch_member({"conn_url": "postgres://a", "api_url": "http://a"})
    assert dcs.attempt_to_acquire_leader()
    state = dcs.write_sync_state("pg", {"other"}, 0)
    assert dcs.manual_failover("pg", "other")
    dcs.write_status({"optime": 99})
    cluster = dcs.get_cluster()
    assert cluster.initialize == "77"
    assert cluster.config.data == {"ttl": 30}
    assert [member.name for member in cluster.members] == ["pg"]
    assert cluster.leader.member.api_url == "http://a"
    assert cluster.failover.candidate == "other"
    assert cluster.status.last_lsn == 99
    assert state is not None
    assert cluster.sync.version == state.version
    # A condition on a version that is past changes nothing.
    assert dcs.set_config_value("{}", cluster.config.modify_version)
    assert not dcs.set_config_value("{}", cluster.config.modify_version)


def test_one_member_leads_and_loses_that_with_its_lease(make: Make, store: kraft.sync.Store) -> None:
    one, other = make("one"), make("other")
    assert one.attempt_to_acquire_leader()
    assert not other.attempt_to_acquire_leader()
    leader = other.get_cluster().leader
    assert leader.name == "one"
    assert one._update_leader(leader)
    assert not other._update_leader(leader)
    assert not other.delete_leader(leader)
    # The same member after a restart is the leader still, by a lease of its own.
    again = make("one")
    assert again._update_leader(leader)
    assert again._leader_lease is not None
    store.revoke(Lease(again._leader_lease.id, 30))
    assert other.get_cluster().leader is None
    assert other.attempt_to_acquire_leader()
    assert not again._update_leader(leader)
    # Without any leader the update takes the place.
    assert other.delete_leader(other.get_cluster().leader)
    assert again._update_leader(leader)


def test_what_others_change_wakes_the_loop(make: Make) -> None:
    one, other = make("one"), make("other")
    assert not one.watch(None, 0)
    for change in (
        other.attempt_to_acquire_leader,
        lambda: other.touch_member({"new": 1}),
        lambda: other.set_config_value("{}"),
        lambda: other.manual_failover("other", "one"),
        lambda: other._write_status("{}"),
        lambda: other._delete_leader(None),
    ):
        assert change()
        assert one.watch(None, 5)
        one.event.clear()
    # The same member with other data is no news.
    assert other.touch_member({"new": 2})
    assert not one.watch(None, 0.05)


def test_without_a_quorum_calls_end_in_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    dcs = make()

    async def never(*given: Any, **named: Any) -> None:
        import trio

        await trio.sleep_forever()

    dcs.set_retry_timeout(0.05)  # type: ignore[arg-type]  # shorter than Patroni allows
    for name in ("get", "put", "scan", "grant", "delete"):
        monkeypatch.setattr(dcs._store.trio, name, never)
    with pytest.raises(KraftError, match="no quorum has answered in time"):
        dcs.get_cluster()
    with pytest.raises(KraftError):
        dcs.attempt_to_acquire_leader()
    assert not dcs.set_config_value("{}")
    assert not dcs.take_leader()
    assert dcs.set_sync_state_value("{}") is False
