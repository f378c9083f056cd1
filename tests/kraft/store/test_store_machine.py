"""The state of a store against a plain model, for any commands and any clocks of leaders."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from kraft import limits
from kraft.state_machine import Codec, Position
from kraft.store import machine as machine_module
from kraft.store.commands import (
    Append,
    Clear,
    Command,
    Delete,
    Done,
    Entry,
    Event,
    Grant,
    Granted,
    IfValue,
    IfVersion,
    LeaseEnded,
    Mismatch,
    Pass,
    Put,
    Renew,
    Result,
    Revoke,
    Transaction,
    Unfit,
)
from kraft.store.errors import Compacted
from kraft.store.machine import StoreMachine

KEYS = st.text("ab/\U0010ffff", min_size=1, max_size=3)
PREFIXES = st.text("ab/\U0010ffff", max_size=2)
VALUES = st.binary(max_size=2)
NUMBERS = st.integers(0, 12)
"""Versions and leases, of which some exist."""
OPERATIONS = st.one_of(
    st.builds(Put, KEYS, VALUES, st.just(0) | NUMBERS),
    st.builds(Delete, KEYS),
    st.builds(Clear, PREFIXES, st.integers(0, 3)),
    st.builds(Append, PREFIXES, VALUES, st.just(0) | NUMBERS),
)
CONDITIONS = st.builds(IfVersion, KEYS, NUMBERS) | st.builds(IfValue, KEYS, VALUES)
COMMANDS = st.one_of(
    st.builds(Transaction, st.lists(OPERATIONS, max_size=3).map(tuple), st.lists(CONDITIONS, max_size=1).map(tuple)),
    st.builds(Grant, st.sampled_from([2999, 3000, 7000])),
    st.builds(Renew, NUMBERS),
    st.builds(Revoke, NUMBERS),
    st.just(Pass()),
)
STEPS = st.lists(
    st.tuples(COMMANDS, st.integers(0, 1), st.sampled_from([-9000, 0, 500, 1000, 2000, 60_000]), st.booleans()),
    max_size=40,
)


class ModelLease(Struct):
    ttl_ms: int
    ends_ms: int


class Model:
    """The rules of a store without any order, index or limit of memory."""

    def __init__(self) -> None:
        self.revision = 0
        self.now_ms = 0
        self.last = (0, 0)
        self.entries: dict[str, Entry] = {}
        self.leases: dict[int, ModelLease] = {}
        self.events: list[Event] = []

    def apply(self, command: Command, at: Position) -> Result:
        epoch, before_ms = self.last
        if at.epoch == epoch:
            self.now_ms += max(0, min(2000, at.timestamp_ms - before_ms))
        self.last = (at.epoch, at.timestamp_ms)
        for lease in sorted(self.leases, key=lambda one: (self.leases[one].ends_ms, one)):
            if self.leases[lease].ends_ms <= self.now_ms:
                self.end(lease)
        match command:
            case Transaction():
                return self.transact(command)
            case Grant(ttl_ms):
                if ttl_ms < 3000:
                    return Unfit("")
                self.revision += 1
                self.leases[self.revision] = ModelLease(ttl_ms, self.now_ms + ttl_ms)
                return Granted(self.revision)
            case Renew(lease) | Revoke(lease):
                if lease not in self.leases:
                    return LeaseEnded(lease)
                if isinstance(command, Revoke):
                    self.end(lease)
                else:
                    self.leases[lease].ends_ms = self.now_ms + self.leases[lease].ttl_ms
        return Done(self.revision)

    def end(self, lease: int) -> None:
        del self.leases[lease]
        self.change([Event(0, key, None) for key in sorted(self.entries) if self.entries[key].lease == lease], {})

    def change(self, events: list[Event], leases: dict[str, int]) -> None:
        if events:
            self.revision += 1
        for event in events:
            self.events.append(Event(self.revision, event.key, event.value))
            before = self.entries.pop(event.key, None)
            if event.value is not None:
                created = self.revision if before is None else before.created
                self.entries[event.key] = Entry(
                    event.key, event.value, self.revision, created, leases.get(event.key, 0)
                )

    def transact(self, asked: Transaction) -> Result:
        named = [
            (type(one), one.prefix) if isinstance(one, Clear | Append) else (None, one.key) for one in asked.operations
        ]
        if not named or len(set(named)) < len(named):
            return Unfit("")
        if any(isinstance(one, Clear) and one.most < 1 for one in asked.operations):
            return Unfit("")
        for condition in asked.conditions:
            entry = self.entries.get(condition.key)
            match condition:
                case IfVersion(version=version):
                    holds = version == (entry.version if entry else 0)
                case IfValue(value=value):
                    holds = entry is not None and entry.value == value
            if not holds:
                return Mismatch(condition.key, entry)
        for one in asked.operations:
            if isinstance(one, Put | Append) and one.lease and one.lease not in self.leases:
                return LeaseEnded(one.lease)
        state = dict(self.entries)
        events: list[Event] = []
        leases: dict[str, int] = {}
        found = 0
        for one in asked.operations:
            match one:
                case Put(key, value, lease):
                    pass
                case Append(prefix, value, lease):
                    key = f"{prefix}{self.revision + 1:020}"
                case Delete() | Clear():
                    if isinstance(one, Delete):
                        gone = [one.key] if one.key in state else []
                    else:
                        gone = sorted(key for key in state if key.startswith(one.prefix))[: one.most]
                    found += len(gone)
                    for key in gone:
                        del state[key]
                        events.append(Event(0, key, None))
                    continue
            state[key] = Entry(key, value, 0, 0)
            events.append(Event(0, key, value))
            leases[key] = lease
        self.change(events, leases)
        return Done(self.revision, found)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_a_store_does_what_a_plain_model_does(steps: list[tuple[Command, int, int, bool]]) -> None:
    model, machine, codec = Model(), StoreMachine(history=1000), Codec(StoreMachine())
    epoch, now_ms = 1, 100_000
    for command, elected, passed_ms, restarts in steps:
        epoch, now_ms = epoch + elected, now_ms + passed_ms
        at = Position(0, epoch, now_ms)
        result = machine.apply(codec.command(codec.encode(command)), at)
        assert codec.result(codec.encode(result)) == result
        wanted = model.apply(command, at)
        assert result == wanted or (type(result), type(wanted)) == (Unfit, Unfit)
        if restarts:
            data, machine = machine.snapshot(), StoreMachine(history=1000)
            machine.restore(data)
            assert machine.snapshot() == data
        assert machine.revision == model.revision
        assert machine.scan() == [model.entries[key] for key in sorted(model.entries)]
        assert list(machine.events_after(0)) == model.events
    for prefix in ("", "a", "/", "\U0010ffff", "b\U0010ffff"):
        keys = sorted(key for key in model.entries if key.startswith(prefix))
        assert [one.key for one in machine.scan(prefix)] == keys
        for place, key in enumerate(keys):
            assert [one.key for one in machine.scan(prefix, key, 2)] == keys[place + 1 : place + 3]


@settings(max_examples=50, deadline=None)
@given(STEPS, st.integers(1, 4))
def test_the_kept_history_has_no_gap(steps: list[tuple[Command, int, int, bool]], history: int) -> None:
    model, machine = Model(), StoreMachine(history=history)
    for number, (command, _, _, restarts) in enumerate(steps):
        at = Position(number, 1, 1000 * number)
        model.apply(command, at)
        machine.apply(command, at)
        if restarts:
            data, machine = machine.snapshot(), StoreMachine(history=history)
            machine.restore(data)
        for after in range(machine.revision + 1):
            wanted = [event for event in model.events if event.revision > after]
            if after < machine.compacted:
                with pytest.raises(Compacted) as refused:
                    machine.events_after(after)
                assert refused.value.revision == machine.compacted
                continue
            assert list(machine.events_after(after)) == wanted
            first = machine.events_after(after, 1)
            assert list(first) == [event for event in wanted if event.revision == wanted[0].revision]
        kept = machine.events_after(machine.compacted)
        assert min(history, len(model.events)) <= len(kept) <= 2 * history + 9


def put(machine: StoreMachine, *operations: Put | Append | Clear | Delete) -> Result:
    return machine.apply(Transaction(operations), Position(0, 1, 0))


def test_what_exceeds_a_limit_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = StoreMachine()
    assert isinstance(put(machine, Put("a", b"1")), Done)
    before = machine.snapshot()
    for result, why in (
        (put(machine, Put("k" * 1025, b"")), "at most 1024 bytes"),
        (put(machine, Put("", b"")), "at least one character"),
        (put(machine, Put("b", b"", 0), Put("b", b"", 0)), "no key twice"),
        (put(machine, Put("b", bytes(limits.TRANSACTION_BYTES + 1))), "at most 524288 bytes in all"),
        (put(machine, *(Put(f"k{number}", b"") for number in range(129))), "at most 128 operations"),
        (put(machine, Clear("", 1001)), "clears at most 1000 keys"),
        (put(machine), "at least one operation"),
    ):
        assert isinstance(result, Unfit)
        assert why in result.why
    assert machine.snapshot() == before
    monkeypatch.setattr(machine_module, "STORE_KEYS", 1)
    monkeypatch.setattr(machine_module, "STORE_BYTES", 4)
    monkeypatch.setattr(machine_module, "LEASES", 0)
    for result, why in (
        (put(machine, Put("b", b"")), "room for 1 keys, and has 1"),
        (put(machine, Put("a", b"1234")), "room for 4 bytes of keys and values, and has 2"),
        (machine.apply(Grant(3000), Position(0, 1, 0)), "room for 0 leases"),
    ):
        assert isinstance(result, Unfit)
        assert why in result.why
    assert machine.snapshot() == before
    assert put(machine, Put("a", b"123")) == Done(2)


def test_the_keys_of_a_lease_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "LEASE_KEYS", 2)
    machine = StoreMachine()
    assert machine.apply(Grant(3000), Position(0, 1, 0)) == Granted(1)
    assert isinstance(put(machine, Put("a", b"", 1), Put("b", b"", 1)), Done)
    assert isinstance(put(machine, Put("a", b"2", 1)), Done)
    assert isinstance(put(machine, Put("c", b"", 1)), Unfit)
    assert isinstance(put(machine, Put("a", b"3")), Done)
    assert isinstance(put(machine, Put("c", b"", 1)), Done)


def test_leases_that_end_together_end_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "ENDED_AT_ONCE", 3)
    machine = StoreMachine()
    for number in range(5):
        machine.apply(Grant(3000), Position(0, 1, 0))
        put(machine, Put(f"k{number}", b"", machine.revision))
    left = []
    for moment in (1500, 3000, 3000, 3000):
        machine.apply(Pass(), Position(0, 1, moment))
        left.append(len(machine.scan()))
    assert left == [5, 3, 1, 0]


def test_an_election_and_a_pause_of_the_quorum_end_no_lease() -> None:
    """The clock of the log counts what passes under one leader, from one command to the next at most two seconds."""
    machine = StoreMachine()
    assert machine.apply(Grant(3000), Position(0, 1, 0)) == Granted(1)
    for epoch, timestamp_ms in ((1, 3_600_000), (2, 9_000_000), (2, 1000), (2, 1500)):
        machine.apply(Pass(), Position(0, epoch, timestamp_ms))
    assert machine.now_ms == 2500
    assert machine.tick() == Pass()
    machine.apply(Pass(), Position(0, 2, 2000))
    assert machine.apply(Renew(1), Position(0, 2, 2000)) == LeaseEnded(1)
    assert machine.tick() is None


def test_a_lease_that_is_renewed_often_leaves_nothing_behind() -> None:
    machine = StoreMachine()
    machine.apply(Grant(3000), Position(0, 1, 0))
    for number in range(1000):
        machine.apply(Renew(1), Position(0, 1, number))
    assert len(machine._ends) < 100
