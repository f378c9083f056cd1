"""The numbers of `kraft.limits` relate to each other and to the turn: each relation is broken once, and named."""

from __future__ import annotations

import ast
import re
from operator import attrgetter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest

from kraft import limits
from kraft.limits import COST_US, PORTION_MS, RELATIONS, broken
from metadata_log.log.snapshot_writer import MAX_BATCH_BYTES
from support import ROOT

TOO_LONG = {
    f"{portion} fits into a portion": {portion: int(PORTION_MS * 1000 / COST_US[portion]) + 1} for portion in COST_US
}
TOO_LARGE = {
    f"{size} is copied in a portion": {size: (PORTION_MS + 1) * limits.COPIED_BYTES_PER_MS} for size in limits.COPIED
}
BREAKING: dict[str, dict[str, int]] = {
    **TOO_LONG,
    **TOO_LARGE,
    "a portion and the room before it are one turn": {"TURN_MS": 49},
    "a start leaves as much as a turn": {"START_ROOM_MS": 21},
    "the early requests of a turn are decided in a turn": {"EARLY_PER_TURN": 101},
    "a single answer fits into a turn of answers": {"MOST_TOLD": 1025},
    "a transaction of a store fits into a request": {"TRANSACTION_BYTES": (4 << 20) + 1},
    "a store remembers its last transaction": {"TRANSACTION_BYTES": 2 << 20},
    "a lease ends as a whole": {"LEASE_KEYS": 2000},
    "a step of a lease's clock is no lease": {"LEASE_STEP_MS": 3000},
    "what may be atomic fits into a batch": {"RECORDS_PER_OPERATION": 10_001},
    "a batch of a controller is decoded in a turn": {"RECORDS_PER_BATCH": 10_001},
    "a request for partitions is one operation": {"PARTITIONS_PER_REQUEST": 10_001},
    "a run of elections is one operation": {"ELECTIONS_PER_RUN": 10_001},
    "a run of removals is one operation": {"TOKENS_PER_RUN": 10_001},
    "a leader takes a batch of records": {"UNCOMMITTED_RECORDS": 9_999},
    "a record more than a decision's batch still fits": {"DECISION_BATCH_BYTES": (4 << 20) + 1},
    "a batch of a snapshot is one of a log": {"SNAPSHOT_BATCH_BYTES": (8 << 20) + 1},
    "a piece of a state machine's snapshot fits": {"MACHINE_PIECE_BYTES": (4 << 20) + 1},
    "forwarded commands fit into a batch": {"FORWARD_BYTES": (4 << 20) + 1},
    "an observer is sent no more than a voter": {"OBSERVER_ANSWER_BYTES": (8 << 20) + 1},
    "a batch fits into a frame": {"FRAME_BYTES": (16 << 20) - 1},
    "a leader takes more than its program appends": {"OUTSTANDING_APPEND_BYTES": 128 << 20},
    "a leader takes many batches": {"OUTSTANDING_APPEND_BYTES": (32 << 20) - 1},
    "a turn of appends is encoded in a portion": {"APPENDED_BYTES_PER_TURN": 1_051_425},
    "what waits for a controller is counted as unanswered": {"DECISIONS_WAITING": 45_537},
    "what waits at a broker is counted as unanswered": {"REQUESTS_WAITING": 65_537},
    "a large streams group is one that has portions": {"STREAMS_PARTITIONS_AT_ONCE": 20_001},
    "a member of a streams group may tell the offsets of all tasks": {"STREAMS_OFFSETS": 39_999},
    "a large streams group has fewer members than any": {"STREAMS_MEMBERS_AT_ONCE": 5001},
    "a member has fewer tags than a topology has settings": {"STREAMS_CLIENT_TAGS": 5001},
    "a topology has room for the topics that it may name": {"STREAMS_TOPOLOGY_ITEMS": 1499},
    "a share session is one of many": {"SHARE_SESSION_PARTITIONS": 50_001},
    "locks are looked at soon after they have ended": {"SHARE_LOCKS_PAUSE_MS": 51},
    "all that waits at a broker may be verified": {"VERIFICATIONS": 19_999},
    "forwarded entries come in whole requests": {"FORWARDED_ENTRIES": 499},
    "the entries of a request fit into a session": {"SESSION_WINDOW": 499},
    "requests without a connection are few": {"ORPHANED_PRODUCES": 20_000},
    "what unpacks is looked at in every turn": {"UNPACKED_AT_ONCE": 201},
    "the session of a consumer fits into the half of consumers": {"SESSION_PARTITION_BYTES": 6711},
    "a session is told of fewer strangers than it holds": {"SESSION_UNKNOWN_PARTITIONS": 10_001},
    "remembered verdicts take some megabytes": {"VERDICTS": 16_845},
    "CHEAP_PER_STEP is within one of DECISION_STEPS_PER_TURN": {"CHEAP_PER_STEP": 17},
    "ELECTIONS_EXAMINED_PER_STEP is within one of DECISION_STEPS_PER_TURN": {"ELECTIONS_EXAMINED_PER_STEP": 5},
    "ITEMS_PER_STEP is within one of DECISION_STEPS_PER_TURN": {"ITEMS_PER_STEP": 67},
    "CONFIGS_PER_STEP is within one of METADATA_STEPS_PER_TURN": {"CONFIGS_PER_STEP": 6},
    "ITEMS_PER_ANSWER is within one of ANSWERS_PER_TURN": {"ITEMS_PER_ANSWER": 67},
    "PARTITIONS_PER_STEP is within one of REQUEST_STEPS_PER_TURN": {"PARTITIONS_PER_STEP": 72},
    "SHARE_TYPES_PER_STEP is within one of REQUEST_STEPS_PER_TURN": {"SHARE_TYPES_PER_STEP": 16_667},
    "SHARE_PIECES_PER_STEP is within one of REQUEST_STEPS_PER_TURN": {"SHARE_PIECES_PER_STEP": 63},
    "LETTERS_PER_STEP is within one of REQUEST_STEPS_PER_TURN": {"LETTERS_PER_STEP": 101},
    "MARKERS_PER_STEP is within one of REQUEST_STEPS_PER_TURN": {"MARKERS_PER_STEP": 9},
    "MARKERS_ANSWERED_PER_STEP is within one of REQUEST_STEPS_PER_TURN": {"MARKERS_ANSWERED_PER_STEP": 167},
    "ADDITIONS_PER_STEP is within one of REQUEST_STEPS_PER_TURN": {"ADDITIONS_PER_STEP": 9},
    "SHARE_STATES_PER_STEP is within one of REQUEST_STEPS_PER_TURN": {"SHARE_STATES_PER_STEP": 9},
    "TRANSACTIONS_PER_STEP is within one of REQUEST_STEPS_PER_TURN": {"TRANSACTIONS_PER_STEP": 264},
    "NAME_CHARACTERS_PER_STEP is within one of METADATA_STEPS_PER_TURN": {"NAME_CHARACTERS_PER_STEP": 1251},
    "GLANCES_PER_UNIT is within one of COORDINATOR_UNITS_PER_TURN": {"GLANCES_PER_UNIT": 17},
    "MEMBERS_PER_UNIT is within one of COORDINATOR_UNITS_PER_TURN": {"MEMBERS_PER_UNIT": 5},
    "GROUPS_FREED_PER_UNIT is within one of COORDINATOR_UNITS_PER_TURN": {"GROUPS_FREED_PER_UNIT": 11},
    "PATTERN_WEIGHT_PER_UNIT is within one of COORDINATOR_UNITS_PER_TURN": {"PATTERN_WEIGHT_PER_UNIT": 101},
    "PATTERN_STEPS_PER_UNIT is within one of COORDINATOR_UNITS_PER_TURN": {"PATTERN_STEPS_PER_UNIT": 2001},
    "PARTITIONS_PER_HASH is within one of HASHES_PER_STEP": {"PARTITIONS_PER_HASH": 101},
    "TELEMETRY_POINTS_PER_STEP is within one of REQUEST_STEPS_PER_TURN": {"TELEMETRY_POINTS_PER_STEP": 51},
    "TELEMETRY_BYTES_PER_STEP is within one of REQUEST_STEPS_PER_TURN": {"TELEMETRY_BYTES_PER_STEP": 8334},
    "TELEMETRY_MATCH_PER_STEP is within one of REQUEST_STEPS_PER_TURN": {"TELEMETRY_MATCH_PER_STEP": 50_001},
    "TELEMETRY_WEIGHT_PER_STEP is within one of REQUEST_STEPS_PER_TURN": {"TELEMETRY_WEIGHT_PER_STEP": 2501},
    "what is kept of the software of a client is counted": {"SOFTWARE_CHARACTERS": 334},
    "each subscription may have a pattern": {"TELEMETRY_SUBSCRIPTIONS": 501},
    "one client pushes less than all may": {"TELEMETRY_SERIES_OF_CLIENT": 20_001},
    "the numbers of a push are in its fields": {"TELEMETRY_FIELDS": 9999},
    "the labels of a number fit into a metric": {"TELEMETRY_LABEL_CHARACTERS": 2049},
    "connections that are held are few": {"transport.HELD_AT_ONCE": 1251},
    "KEYS_AT_ONCE is within one of REQUEST_STEPS_PER_TURN": {"KEYS_AT_ONCE": 17},
    "what is remembered of strangers is little": {"VERDICTS": 44_505},
    "what clients store has a bound": {"GROUP_STATE_BYTES": 536870913},
    "the name of a group is remembered as one of a topic": {"REMEMBERED_CHARACTERS": 250},
    "a forwarded request of any size is decided in a turn": {"FRAME_BYTES": 524288001},
    "a commit counts as the steps that it takes": {"COMMITS_PER_STEP": 501},
    "a piece that is compressed is part of a turn": {"STEPS_PER_PIECE": 21},
    "the operations of a transaction of a store have room for their keys": {"TRANSACTION_OPERATIONS": 513},
    "a store forgets no transaction in part": {"TRANSACTION_OPERATIONS": 5001},
    "what a store remembers is less than it holds": {"STORE_HISTORY_BYTES": 8388609},
    "a watcher may be behind all that is remembered": {"STORE_HISTORY_EVENTS": 32769},
    "each lease may hold a key": {"LEASES": 25001},
    "time passes more than once in a step of leases": {"LEASE_TICK_MS": 2000},
    "leases have a span": {"SHORTEST_LEASE_MS": 86400000},
    "each session of a machine has a place in its group": {"SESSION_WINDOW": 10001},
    "the patterns of a request hold one of a client": {"PATTERN_CHARACTERS": 65537},
    "a pattern may have its characters": {"PATTERN_CHARACTERS": 100001},
    "a pattern is compiled in a turn of a coordinator": {"PATTERN_WEIGHT": 100001},
    "a match is no long turn": {"PATTERN_STEPS": 3000001},
    "a text that is short takes less than a unit": {"PATTERN_STEPS_PER_LOOK": 2000},
    "a portion of matches leaves others room": {"PATTERN_UNITS_PER_PORTION": 501},
    "a look at all topics has time for its portions": {"REGEX_PORTION_PAUSE_MS": 10000},
    "an operation that begins anew ends before the next look": {"OPERATION_BEGINNINGS": 607},
    "a member of either kind names as many topics": {"NAMED_TOPICS": 10001},
    "a heartbeat at once names fewer than any": {"HEARTBEAT_TOPICS": 1501},
    "members that never joined are fewer than members": {"PENDING_MEMBERS": 5001},
    "members that leave at once are fewer, too": {"LEAVING_AT_ONCE": 5001},
    "the offsets of one group fit": {"OFFSETS_PER_GROUP": 1342178},
    "the groups of one partition fit": {"GROUPS_PER_PARTITION": 447393},
    "assignments of a group fit even then": {"ASSIGNMENT_BYTES_PER_MEMBER": 107375},
    "the metadata that is always taken is less than an assignment": {"PLAIN_METADATA": 4096},
    "a transaction commits more than one request": {"COMMITS_PER_STEP": 10001},
    "the states of a group may wait to be asked for": {"STATE_CALLS_WAITING": 20_999},
    "a group has what a request alters": {"SHARE_PARTITIONS_PER_GROUP": 4999},
    "a group whose transaction ends counts as its offsets": {"UNITS_PER_ENDED_GROUP": 9},
    "a small transaction is no large one": {"SMALL_TRANSACTION": 1000},
    "a transaction may be large": {"LARGE_TRANSACTION": 10001},
    "long answers are repeated less than short ones": {"REPEATED_GROUPS": 1001},
    "offsets that are repeated fit into an answer": {"REPEATED_OFFSETS": 3201},
    "a leader tracks more observers than a voter has listeners": {"LISTENERS_PER_VOTER": 4097},
    "voters keep a share of the connections": {"transport.RESERVED_CONNECTIONS": 1251},
    "those without a login are few": {"transport.UNSECURED_CONNECTIONS": 1251},
    "an address has a share of them": {"transport.UNSECURED_PER_ADDRESS": 65},
    "handshakes hold less than requests": {"transport.UNSECURED_CONNECTIONS": 513},
    "a turn of handshakes is no long one": {"transport.HANDSHAKE_STEPS_PER_TURN": 21},
    "small connections read on beside large ones": {"transport.SMALL_BYTES": 2097153},
    "a read is no more than a steady peer takes": {"transport.READ_BYTES": 65537},
    "a read grows": {"transport.READ_BYTES": 1048577},
    "what is not counted is less than a read": {"transport.COUNTED_BYTES": 65536},
    "a connection is closed after its place is given on": {"transport.PLACE_SECONDS": 30},
    "a connection leaves others unsent bytes": {"transport.UNSENT_PER_CONNECTION": 16777217},
    "an answer leaves room for others": {"transport.ANSWERS_IN_ROOM": 129},
    "voters fetch more than strangers": {"transport.BULK_BYTES": 2097153},
    "a connection has a part of a turn": {"transport.QUANTUM": 33},
    "connections that deliver at once stay within a turn": {"transport.MEMBERS_AT_ONCE": 32},
    "one connection does not fill a node": {"transport.UNANSWERED_PER_CONNECTION": 8193},
}
"""For each relation, the first number that breaks it."""
BOUND: Final = re.compile(r"PER_(STEP|TURN|UNIT|PORTION)$|AT_ONCE$|^_?MANY_|^_?MOST_SEEN")
ELSEWHERE: Final = [
    "transport/epoll.py: _EVENTS_AT_ONCE",
    "transport/epoll.py: _BURSTS_PER_TURN",
    "transport/epoll.py: _PATIENT_BURSTS_PER_TURN",
    "transport/epoll.py: _ACCEPTS_AT_ONCE",
    "transport/protocol/server_connection.py: ELEMENTS_PER_STEP",
]
"""What the loop over sockets and the codec of frames alone know."""


def changed(name: str, value: float) -> SimpleNamespace:
    """The limits with another number, perhaps one of the transport's."""
    room, _, own = name.rpartition(".")
    inner = SimpleNamespace(**{**vars(limits.transport if room else limits), own: value})
    return SimpleNamespace(**{**vars(limits), room: inner}) if room else inner


class Asked:
    """The limits, which remember what a relation asks of them."""

    def __init__(self, names: set[str], room: str = "") -> None:
        self._names = names
        self._room = room

    def __getattr__(self, name: str) -> Any:
        if name == "transport":
            return Asked(self._names, "transport.")
        self._names.add(self._room + name)
        return attrgetter(self._room + name)(limits)


def numbers_of(module: ModuleType) -> set[str]:
    """The numbers that a module defines."""
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    return {name for name in map(assigned_name, tree.body) if isinstance(getattr(module, name, None), int | float)}


def assigned_name(statement: ast.stmt) -> str:
    """The name that a statement of a module gives a value, with or without a type; empty for other statements."""
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return ""


def test_each_number_is_in_a_relation() -> None:
    asked: set[str] = set()
    for holds in RELATIONS.values():
        assert holds(Asked(asked))
    of_transport = {f"transport.{name}" for name in numbers_of(limits.transport)}
    assert sorted((numbers_of(limits) | of_transport) - asked) == []


def test_no_bound_of_a_turn_stands_elsewhere() -> None:
    """Kafka's own numbers, and the costs of single things in bytes, stand where they are used."""
    found = []
    for top in (
        "kraft/coordinators",
        "kraft/partitions",
        "kraft/broker",
        "kraft/handling",
        "kraft/controller",
        "transport",
    ):
        for path in sorted((ROOT / top).rglob("*.py")):
            for one in ast.parse(path.read_text("utf-8")).body:
                name, value = assigned_name(one), getattr(one, "value", None)
                if BOUND.search(name) and isinstance(value, ast.Constant | ast.BinOp) and path.name != "limits.py":
                    found.append(f"{path.relative_to(ROOT)}: {name}")
    assert found == ELSEWHERE


def test_the_numbers_relate() -> None:
    assert broken(limits) == []


def test_the_largest_batch_is_that_of_the_files() -> None:
    """What writes and receives snapshots lies below these numbers."""
    assert limits.BATCH_BYTES == MAX_BATCH_BYTES


def test_each_relation_can_be_broken() -> None:
    assert sorted(BREAKING) == sorted(RELATIONS)


@pytest.mark.parametrize("relation", BREAKING)
def test_a_number_that_breaks_a_relation_is_named(relation: str) -> None:
    """Others that depend on the same number may break with it."""
    ((name, value),) = BREAKING[relation].items()
    assert relation in broken(changed(name, value))


@pytest.mark.parametrize("relation", [one for one in BREAKING if one not in TOO_LARGE])
def test_one_less_holds(relation: str) -> None:
    """The number stands at the edge of its relation."""
    ((name, value),) = BREAKING[relation].items()
    step = 1 if value < attrgetter(name)(limits) else -1
    assert relation not in broken(changed(name, value + step))
