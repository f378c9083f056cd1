"""The driver of tooz: tooz's own tests, and what they do not ask."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import tooz
from oslo_utils import netutils
from tooz import coordination

import kraft.sync
from kraft.adapters.tooz import KraftDriver, KraftLock
from kraft.store import Lease
from store_quorums import client_url, prepare, running
from support import ROOT
from support.documented_programs import program, run_program
from support.eventually import eventually

NOT_APPLICABLE = {"test_heartbeat", "test_heartbeat_loop", "test_timeout", "test_watch_join_group_disappear"}
"""The page docs/reference/suites-on-the-store.md says why."""


def driver(url: str, member: bytes) -> KraftDriver:
    """As `get_coordinator` makes it, also where the entry point is not installed anew."""
    return KraftDriver(member, netutils.urlsplit(url), {"timeout": ["20"]})


@pytest.fixture
def two(files: list[Path], store: kraft.sync.Store) -> Iterator[tuple[KraftDriver, KraftDriver]]:
    one, other = (driver(client_url(files), member) for member in (b"one", b"other"))
    one.start()
    other.start()
    yield one, other
    for each in (one, other):
        if each.is_started:
            each.stop()


def test_the_entry_point_names_the_driver() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert f'kraft = "{KraftDriver.__module__}:{KraftDriver.__qualname__}"' in text


def test_coordinators_with_one_url_share_a_node_and_end_it_together(
    two: tuple[KraftDriver, KraftDriver], store: kraft.sync.Store
) -> None:
    one, other = two
    assert one.store is other.store is not store
    shared = one.store
    one.stop()
    assert other.get_groups().get() == []
    other.stop()
    with pytest.raises(kraft.LoopEnded):
        shared.get("a")
    with pytest.raises(tooz.ToozError, match="not started"):
        other.get_groups()


def test_who_stops_gives_back_locks_and_leadership(two: tuple[KraftDriver, KraftDriver]) -> None:
    one, other = two
    one.watch_elected_as_leader(b"led", lambda event: None)
    one.run_watchers()
    lock = one.get_lock(b"lock/with slashes")
    assert lock.acquire()
    waiting = other.get_lock(b"lock/with slashes")
    assert waiting.acquire(blocking=0.05) is False
    assert other.get_leader(b"led").get() == b"one"
    one.stop()
    assert waiting.acquire(blocking=10.0) is True
    assert other.get_leader(b"led").get() is None
    assert waiting.release()


def test_a_lock_that_was_broken_is_known_to_be_lost(two: tuple[KraftDriver, KraftDriver]) -> None:
    one, other = two
    lock = one.get_lock(b"broken")
    assert lock.acquire()
    assert lock.is_still_owner()
    assert other.get_lock(b"broken").break_()
    assert not lock.is_still_owner()
    assert not lock.release()


def test_readers_wait_for_a_writer_that_came_before_them(two: tuple[KraftDriver, KraftDriver]) -> None:
    one, other = two
    reader, writer, late = one.get_lock(b"rw"), other.get_lock(b"rw"), one.get_lock(b"rw")
    assert reader.acquire(shared=True)
    got: list[str] = []
    threads = []
    for name, lock, shared in (("writer", writer, False), ("late", late, True)):
        before = len(other.store.scan("tooz/locks/rw/").entries)

        def take(name: str = name, lock: KraftLock = lock, shared: bool = shared) -> None:
            assert lock.acquire(shared=shared)
            got.append(name)
            assert lock.release()

        threads.append(threading.Thread(target=take))
        threads[-1].start()
        eventually(lambda seen=before: len(other.store.scan("tooz/locks/rw/").entries) > seen, f"{name} waits")
    assert not other.get_lock(b"rw").acquire(blocking=False, shared=True)
    assert not got
    assert reader.release()
    for thread in threads:
        thread.join()
    assert got == ["writer", "late"]


def test_a_group_is_not_deleted_while_somebody_joins(two: tuple[KraftDriver, KraftDriver]) -> None:
    one, other = two
    one.create_group(b"g").get()
    outcomes: list[type[Exception] | None] = []

    def joins() -> None:
        try:
            other.join_group(b"g").get()
            outcomes.append(None)
        except coordination.GroupNotCreated as gone:
            outcomes.append(type(gone))

    thread = threading.Thread(target=joins)
    thread.start()
    try:
        one.delete_group(b"g").get()
        deleted = True
    except coordination.GroupNotEmpty:
        deleted = False
    thread.join()
    assert outcomes == [coordination.GroupNotCreated if deleted else None]
    if not deleted:
        assert one.get_members(b"g").get() == {b"other"}
        other.leave_group(b"g").get()
        one.delete_group(b"g").get()


def test_a_member_whose_lease_was_lost_may_join_again(
    two: tuple[KraftDriver, KraftDriver], store: kraft.sync.Store
) -> None:
    one, other = two
    one.create_group(b"again").get()
    one.join_group(b"again").get()
    entry = store.scan("tooz/members/again/").entries[0]
    store.revoke(Lease(entry.lease, 20))
    assert other.get_members(b"again").get() == set()
    session = one._session
    assert session is not None
    # The driver hears of it when it next renews the lease; this test cannot wait so long.
    session.close()
    session.ended.result()
    one.join_group(b"again").get()
    assert other.get_members(b"again").get() == {b"one"}


def test_a_url_that_names_no_store_is_an_error_of_tooz(tmp_path: Path) -> None:
    with pytest.raises(tooz.ToozError, match="this is no URL of a store"):
        driver("kraft://", b"m").start()
    with pytest.raises(tooz.ToozError, match=r"absent\.properties"):
        driver(f"kraft://{tmp_path}/absent.properties", b"m").start()


@pytest.mark.soak
def test_the_program_of_the_page(tmp_path: Path) -> None:
    files = prepare(tmp_path, 1)
    program("adapters.md", "with_tooz.py", tmp_path)
    with running(files):
        assert run_program("with_tooz.py", client_url(files), "host-1", folder=tmp_path) == "[b'host-1']\n"


@pytest.mark.soak
@pytest.mark.parametrize("nodes", [1, 3])
def test_the_tests_of_tooz(tmp_path: Path, nodes: int) -> None:
    files = prepare(tmp_path, nodes)
    with running(files):
        environment = {**os.environ, "TOOZ_TEST_URL": client_url(files), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "unittest", "-v", "tooz.tests.test_coordination"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    skipped = set(re.findall(r"TestAPI\.(\w+) \.\.\. skipped", done.stderr))
    assert skipped == NOT_APPLICABLE
    ran = re.search(r"^Ran (\d+) tests", done.stderr, re.MULTILINE)
    assert ran is not None
    assert int(ran[1]) >= 83
