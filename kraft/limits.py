"""The bounds of turns, queues and memory, in one place, with the relations between these numbers (as TigerBeetle's
`constants.zig`).

Nothing that a remote sends makes a turn of a node's owner longer than `TURN_MS` (docs/decisions/0022), and everything
that waits has a bound. The relations are checked when this module is loaded: whoever changes a number learns which
others depend on it. Kafka's limits of requests are settings; those of frames are in `transport.protocol.limits`. What
follows from a file format or from Kafka's protocol is not here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from transport.protocol.limits import MAX_FRAME_BYTES

MIB: Final = 1 << 20
FRAME_BYTES: Final = MAX_FRAME_BYTES
"""The largest frame, which bounds a request and an answer."""

# ------------------------------------------------------------------------------------------------------- turns, in time

TURN_MS: Final = 50
"""The bound of a turn: what arrives meanwhile, as a follower's Fetch, waits so long. The node logs longer turns."""
TURN_ROOM_MS: Final = 20
"""A turn that has taken so long handles no further event, so that other tasks run."""
START_ROOM_MS: Final = 10
"""A turn of a start that has taken so long begins no further step."""
PORTION_MS: Final = TURN_MS - TURN_ROOM_MS
"""The time that one portion of work may take: it may begin just before the room of its turn is over."""

# --------------------------------------------------------------------------------------------------- portions of a turn

COST_US: Final[dict[str, float]] = {
    "DECISION_STEPS_PER_TURN": 10,
    "UNITS_PER_TURN": 2.5,
    "COMMITTED_RECORDS_PER_TURN": 10,
    "REPLAYED_RECORDS_PER_TURN": 10,
    "DECODED_RECORDS_PER_TURN": 2.5,
    "COMMANDS_PER_TURN": 10,
    "ANSWERS_PER_TURN": 20,
    "PARTITIONS_FREED_PER_TURN": 1,
    "PARTITIONS_PER_TURN": 10,
    "METADATA_STEPS_PER_TURN": 50,
    "REQUEST_STEPS_PER_TURN": 500,
    "WAITING_PER_TURN": 100,
    "START_RECORDS_PER_STEP": 10,
    "SNAPSHOT_RECORDS_PER_PIECE": 10,
    "LOADED_BATCHES_PER_STEP": 20,
    "COORDINATOR_RECORDS_PER_STEP": 40,
    "COORDINATOR_UNITS_PER_TURN": 20,
    "PRODUCERS_PER_STEP": 1,
    "PRODUCERS_AT_ONCE": 1,
}
"""The microseconds that one counted thing takes, for each kind of portion, on a core of the machine of the benches. To
decode a record takes 2.4 us there, to replay it 1.9, to free a partition less than 0.1; the others are upper estimates,
which `bench/turns.py` and `bench/controller.py --what turns` put to the test.
"""
COPIED_BYTES_PER_MS: Final = MIB
"""How many bytes a turn reads, checks and copies in a millisecond: to copy 1 MiB takes 0.5 ms, its checksum 0.04."""

DECISION_STEPS_PER_TURN: Final = 1000
"""The steps of decisions of a controller."""
KEYS_AT_ONCE: Final = 16
"""A decision on one resource with so many changed keys has no steps: it takes less than a hundredth of a turn, besides
patterns, which have a limit of their own."""
STEPS_PER_DECISION: Final = 10
"""How many steps a decision counts as, besides its own."""
BYTES_PER_WEIGHT: Final = 512 << 10
"""So many bytes of a forwarded request make each step of its decision count once more."""
EARLY_PER_TURN: Final = 16
"""The requests that arrived before the leader was active, on which the application decides at once."""
CHEAP_PER_STEP: Final = 16
"""The partitions that a step only examines. A step that changes one partition takes about as long."""
ITEMS_PER_STEP: Final = 64
"""The entries of a response that a step makes, where each repeats a name or a number of the request."""
CONFIGS_PER_STEP: Final = 4
"""The settings of a resource that a step describes."""
ELECTIONS_EXAMINED_PER_STEP: Final = 4
"""The partitions without a due election that make up one step."""
UNITS_PER_TURN: Final = 4000
"""The records of peers that are judged, or equivalent work."""
COMMITTED_RECORDS_PER_TURN: Final = 1000
"""The committed records that are applied before all other work of the replica has its turn."""
REPLAYED_RECORDS_PER_TURN: Final = 1000
"""The committed records that a controller or a broker replays into its image."""
DECODED_RECORDS_PER_TURN: Final = 10_000
"""The records of one batch that are decoded. A controller writes no larger batch."""
COMMANDS_PER_TURN: Final = 1000
"""The commands of one batch that a state machine applies. The user's function is not counted; it is measured."""
ANSWERS_PER_TURN: Final = 1024
"""The weight of the answers that are sent. A single answer may weigh more. 128 answers of any weight fit."""
ITEMS_PER_ANSWER: Final = 64
"""The items of an answer that take as long as a short answer."""
MOST_TOLD: Final = 8
"""The most that a finished answer weighs: the transport encodes a few items at once, the others in turns of its own."""
PARTITIONS_FREED_PER_TURN: Final = 5000
"""The partitions that are freed. Fewer do not justify a turn of their own."""
PARTITIONS_PER_TURN: Final = 2000
"""The partitions that a broker examines, or publishes to its replicas."""
METADATA_STEPS_PER_TURN: Final = 200
"""The steps of long answers of a broker about its metadata."""
NAME_CHARACTERS_PER_STEP: Final = 1024
"""The characters of names of groups and transactional ids that a step hashes."""
REQUEST_STEPS_PER_TURN: Final = 20
"""The steps of one data request."""
WAITING_PER_TURN: Final = 200
"""The waiting data requests that are looked at: a change may wake thousands of consumers."""
PARTITIONS_PER_STEP: Final = 64
"""The partitions of a data request that a step looks at, where nothing is read."""
MARKERS_PER_STEP: Final = 8
"""The markers of transactions that a step writes: each is an append to a log."""
ADDITIONS_PER_STEP: Final = 8
"""The transactions to which a step adds partitions for a broker: each is an append to a log, too."""
MARKERS_PER_REQUEST: Final = 1000
"""The markers that a transaction coordinator sends to a broker in one request."""
MARKERS_PLACED_PER_TURN: Final = 1000
"""The markers of which a transaction coordinator looks up the leaders in a turn."""
TRANSACTIONS_PER_STEP: Final = 256
"""The transactional ids that a step of a list or of a load looks at."""
TRANSACTIONS_EXPIRED_AT_ONCE: Final = 500
"""The transactional ids that a turn looks at, to forget those that nobody uses; the tombstones are one batch."""
START_RECORDS_PER_STEP: Final = 1000
"""The records that a start decodes in one step."""
SNAPSHOT_RECORDS_PER_PIECE: Final = 500
"""The records of a snapshot that are written between two events."""
LOADED_BATCHES_PER_STEP: Final = 256
"""The batches of a partition whose headers a load reads in one step."""
COORDINATOR_RECORDS_PER_STEP: Final = 200
"""The records of a coordinator's log that a load decodes and replays in one step."""
TOPICS_COMPARED_PER_STEP: Final = 5000
"""The topics of two images that are compared in one step, to find deleted ones."""
COORDINATOR_UNITS_PER_TURN: Final = 1000
"""The records that a turn of a coordinator writes by itself, the answers that it gives, or as much of other work."""
GLANCES_PER_UNIT: Final = 16
"""The offsets or operations that are only looked at in the time of such a unit."""
MEMBERS_PER_UNIT: Final = 4
"""The members of a group that are made from its record, each with a timer, in the time of such a unit."""
COMMITS_PER_STEP: Final = 500
"""The offsets that are committed, or forgotten, in one operation; a request with more has several."""
STEPS_PER_COMMIT: Final = 16
"""How many of the steps of a request such an operation counts as."""
OFFSETS_PER_TRANSACTION: Final = 10_000
"""The offsets of one transaction in a partition of `__consumer_offsets`: its marker commits all of them in one turn."""
OFFSETS_ENDED_PER_STEP: Final = 100
"""The offsets of a transaction that a step of a load commits."""
SUBSCRIBED_TOPICS: Final = 10_000
"""The topics in the subscription of a classic consumer that the coordinator reads; one with more is not understood."""
NAMED_TOPICS: Final = 1500
"""The topics that a member of a consumer group names (KIP-848): its heartbeat looks at all of them in one turn."""
GROUP_MEMBERS: Final = 5000
"""The members of a group, whatever `group.max.size` allows: all of them are answered in one turn."""
LEAVING_AT_ONCE: Final = 200
"""The members that leave a consumer group in one operation."""
GROUP_PROTOCOLS: Final = 50_000
"""The protocols that the members of a classic group name in all: a rebalance looks at each of them in one turn. Clients
have one to three.
"""
PENDING_MEMBERS: Final = 1000
"""The member ids of a group that were given out and not used: they live for a session time-out that clients choose."""
GROUPS_PER_PARTITION: Final = 100_000
"""The groups of one partition of `__consumer_offsets`: a group is kept until its offsets expire."""
OFFSETS_PER_GROUP: Final = 200_000
"""The offsets of a group: so many partitions are the most that Kafka expects of a broker."""
REPEATED_GROUPS: Final = 10
"""How many names that stand in a request again are answered again, where the answer to a name may be long."""
REPEATED_OFFSETS: Final = 1_000
"""As `REPEATED_GROUPS`, for partitions of which a request wants the offsets: an offset may have 4 KB of metadata."""
GROUPS_PER_STEP: Final = 200
"""The groups that a step of a list, of an expiry or of a start looks at."""
PRODUCERS_PER_STEP: Final = 2000
"""The entries of a snapshot of producers in one step."""
PRODUCERS_AT_ONCE: Final = 10_000
"""A snapshot of more producers is written in steps."""

# -------------------------------------------------------------------------------------------- portions of a turn, bytes

COPIED: Final = (
    *("APPLIED_BYTES_PER_STEP", "SERVED_AT_ONCE_BYTES", "SNAPSHOT_BATCH_BYTES", "CLEANED_BYTES_PER_STEP"),
    *("SEGMENT_BYTES_PER_STEP", "MOVE_STEP_BYTES", "DECISION_BATCH_BYTES", "BATCH_BYTES", "OBSERVER_ANSWER_BYTES"),
    "LOADED_BYTES_PER_STEP",
)
"""The sizes of what a portion reads, checks or copies."""
KEPT_BYTES: Final = MIB
"""The batches that a follower keeps decoded until their commit. Further ones are read from the log again."""
APPLIED_BYTES_PER_STEP: Final = MIB
"""How many bytes of the log are read to be applied. A long catch-up must not delay other requests."""
SERVED_AT_ONCE_BYTES: Final = 16 * MIB
"""After so many bytes, other fetches that waited for the same records are answered without any."""
SNAPSHOT_BATCH_BYTES: Final = MIB
"""The size of a batch in a snapshot."""
CLEANED_BYTES_PER_STEP: Final = 256 << 10
"""How many bytes one step of compaction reads: few, as it looks into the records."""
LOADED_BYTES_PER_STEP: Final = MIB
"""How many bytes one step of the load of a coordinator reads."""
SEGMENT_BYTES_PER_STEP: Final = MIB
"""How many bytes one step of the recovery of a segment reads."""
MOVE_STEP_BYTES: Final = 512 << 10
"""How many bytes one step of a move between log directories copies; a larger batch is copied whole."""
DECISION_BATCH_BYTES: Final = 4 * MIB
"""The size at which a batch of a divisible result is complete, however few its records are."""
BATCH_BYTES: Final = 8 * MIB
"""The largest record batch of a leader of the quorum (`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`)."""
OBSERVER_ANSWER_BYTES: Final = MIB
"""The largest reply to a replica that is no voter, unless a single batch is larger. Replicas request this size by
default, also Kafka's (`controller.quorum.fetch.max.bytes`).
"""
MACHINE_PIECE_BYTES: Final = 512 << 10
"""A snapshot of a state machine has records of this size, so that none is larger than a batch may be."""
FORWARD_BYTES: Final = 256 << 10
"""The commands of a state machine that one forwarded request carries."""

# -------------------------------------------------------------------------------------- what one decision or run writes

RECORDS_PER_OPERATION: Final = 10_000
"""A request that needs more records is refused as a whole (`MAX_RECORDS_PER_USER_OP`)."""
RECORDS_PER_BATCH: Final = 10_000
"""After so many records a result that need not be atomic is divided into batches (`MAX_RECORDS_PER_BATCH`)."""
PARTITIONS_PER_REQUEST: Final = 10_000
"""The partitions that one CreateTopics or CreatePartitions may ask for, each a record."""
ELECTIONS_PER_RUN: Final = 1000
"""The elections of one timed run. The rest follows in the next run, at once."""
TOKENS_PER_RUN: Final = 1000
"""The delegation tokens that one timed run removes. The rest follows in the next run, at once."""
KEY_BYTES: Final = 1024
"""The length of a key of a store, in UTF-8."""
TRANSACTION_BYTES: Final = 512 << 10
"""The values of one transaction of a store."""
TRANSACTION_OPERATIONS: Final = 128
"""The operations and conditions of one transaction of a store."""
KEYS_CLEARED_AT_ONCE: Final = 1000
"""The keys that one transaction of a store clears; more take several."""
ENDED_AT_ONCE: Final = 2000
"""The leases and keys that end at one command of a store as their time is over; the next commands end the others."""
LEASE_TICK_MS: Final = 1000
"""How often a leader lets time pass in a store that has leases."""
LEASE_STEP_MS: Final = 2 * LEASE_TICK_MS
"""The longest time from one command to the next: the leader writes more often, unless the quorum stands still."""
SHORTEST_LEASE_MS: Final = 3 * LEASE_TICK_MS
"""The shortest life of a lease, which its holder renews three times meanwhile."""
LONGEST_LEASE_MS: Final = 86_400_000
"""The longest."""
MATCH_CHARACTERS: Final = 65_536
"""The patterns of one request for client metrics in total: they are checked in a tenth of a second, in steps."""

# ------------------------------------------------------------------------------------------------------- what may wait

UNANSWERED_REQUESTS: Final = 65_536
"""The unanswered requests of a node. Beyond them it closes the connections that send more."""
DECISIONS_WAITING: Final = 10_000
"""The requests that wait for the decision under way."""
COMMITS_WAITING: Final = 10_000
"""The requests that wait for a commit. One more is answered with REQUEST_TIMED_OUT, undecided."""
UNCOMMITTED_RECORDS: Final = 100_000
"""With so many uncommitted records a decision in progress writes no more."""
UNCOMMITTED_BYTES: Final = 128 * MIB
"""The uncommitted bytes that a leader takes. Beyond them requests are answered with REQUEST_TIMED_OUT."""
OUTSTANDING_APPEND_BYTES: Final = 64 * MIB
"""The outstanding appends of an embedding program: less than the leader takes, as the leader refuses what is beyond."""
APPEND_GROUP_WEIGHT: Final = MIB
"""The appends of an embedding program that become one unit of the log: some thousand small ones, or one large one."""
APPENDED_BYTES_PER_TURN: Final = MIB // 2
"""With so many bytes to write, a turn takes no more appends. A record has at least 21 bytes and takes 0.3 us."""
FORWARDED_ENTRIES: Final = 65_536
"""The entries of other nodes in progress at the leader of a state machine, which refuses more, to be sent again."""
FORWARD_ENTRIES: Final = 500
"""The entries that one forwarded request carries."""
UNREAD_CHANGES: Final = 65_536
"""The unread changes of a watcher of a state machine; beyond them it gets `ChangesSkipped`."""
REQUESTS_WAITING: Final = 20_000
"""The data requests that wait at a broker. One more is answered at once, as if its time were over."""
UNPACKED_AT_ONCE: Final = 2
"""The data requests that look into compressed batches and go on until they are complete: each may have tens of MiB of
records unpacked, and those after them have little.
"""
ORPHANED_PRODUCES: Final = 64
"""While no more requests have steps left, a Produce goes on without its connection: a producer that wants no
acknowledgement may close it at once.
"""
FORWARDED_REQUESTS: Final = 10_000
"""The requests that a broker has at the controller. A further one is answered with REQUEST_TIMED_OUT."""
VERIFICATIONS: Final = 20_000
"""The transactions of which a broker asks coordinators: more than wait, as some askers are gone. A further one is
refused, and its producer tries again.
"""
TOPICS_IN_CREATION: Final = 1000
"""The topics in automatic creation at a broker; any further name waits for the client's next request."""

# ------------------------------------------------------------------------------------------------- what is remembered

MACHINE_SESSIONS: Final = 10_000
"""The sessions of a state machine. The longest silent one goes first. As the window this is a rule of the log: another
number would be another state.
"""
SESSION_WINDOW: Final = 4096
"""The outstanding commands of a session of a state machine, and so the results that it keeps."""
STORE_KEYS: Final = 25_000
"""The keys of a `kraft.Store`. What limits a store, and what it forgets, are rules of the log, too."""
STORE_BYTES: Final = 8 * MIB
"""The keys and values of a store in all, which a snapshot writes in one turn."""
STORE_HISTORY_EVENTS: Final = 5000
"""The last changes that a store keeps for watches, at least; at most twice as many, and one transaction."""
STORE_HISTORY_BYTES: Final = 2 * MIB
"""The same for their keys and values, which may be fewer changes then."""
LEASES: Final = 10_000
"""The leases of a store."""
LEASE_KEYS: Final = 1000
"""The keys that end with one lease, at one command."""
OBSERVERS: Final = 4096
"""The observers that a leader tracks: any client can claim to be one (docs/decisions/0017)."""
SESSIONS_BYTES: Final = 128 * MIB
"""The memory of all fetch sessions; consumers leave half of it to followers. Kafka bounds only their number."""
SESSION_PARTITION_BYTES: Final = 600
"""The memory of one partition of a fetch session, besides a name that the client has chosen."""
SESSION_CONSUMER_PARTITIONS: Final = 10_000
"""The partitions in the fetch session of a consumer; a larger consumer names them in each request."""
SESSION_UNKNOWN_PARTITIONS: Final = 1000
"""The partitions in a fetch session that the broker does not know, or that the client may not read: the broker names
them all in the answer to each request of a few bytes.
"""
VERDICTS: Final = 10_000
"""The verdicts of the authorizer that a broker remembers, each for a caller and a name."""
VERDICT_CHARACTERS: Final = 249
"""The longest name of a resource or a caller of which a verdict is remembered: clients choose names."""
REMEMBERED_NAMES: Final = 10_000
"""The groups, and the transactional ids, of which a broker remembers the partition."""
REMEMBERED_CHARACTERS: Final = 249
"""The longest of these names."""
QUOTA_RATES: Final = 10_000
"""The clients whose rates are counted. Beyond that, the one whose last use is the longest ago is forgotten."""
CLIENT_ADDRESSES: Final = 4096
"""The addresses of clients that are remembered as numbers, to be compared with ranges."""
ADDRESS_RANGES: Final = 65_536
"""The hosts of access rules that are remembered as ranges of addresses. A look at more rules, one after the other,
would parse each of them again, which takes a hundred times as long.
"""
PATTERN_CHARACTERS: Final = 4096
"""The characters of a regular expression of a client."""
PATTERN_WEIGHT: Final = 100_000
"""What makes such an expression long to compile: its characters, the counts of its repetitions, and 700 for each class
of Unicode. RE2 writes repetitions out before it looks at its memory: so much takes 20 ms.
"""
PATTERN_PROGRAM_BYTES: Final = MIB
"""The memory of a compiled expression, at most. None is kept from one turn to the next."""
PATTERN_STEPS: Final = 3_000_000
"""The states of an expression times the bytes of one text that it is matched with: a match cannot pause."""
PATTERN_STEPS_PER_UNIT: Final = 2000
"""The states and bytes that a match looks at in the time of a unit of `COORDINATOR_UNITS_PER_TURN`."""
PATTERN_UNITS_PER_PORTION: Final = 250
"""How many of these units a portion of matches has, of which a look for the topics of a group makes one in a turn."""
TRANSACTION_PARTITIONS: Final = 10_000
"""The partitions of one transaction: each one that is added writes all of them again. Kafka bounds only the record."""
TRANSACTION_STATE_BYTES: Final = 256 * MIB
"""The most memory of the transactional ids that a broker coordinates. Beyond that it accepts no new id, as clients
choose them.
"""
GROUP_STATE_BYTES: Final = 512 * MIB
"""The most memory of groups and offsets that a broker coordinates. Beyond that it accepts no new group, member or
offset, and no longer ones: clients choose all of them.
"""
ASSIGNMENT_BYTES_PER_MEMBER: Final = 4096
"""How many bytes an assignment may have for each member even then."""
TRANSACTION_GUARDS: Final = 10_000
"""The guards of transactions: a producer that is verified and then sends nothing leaves one. The oldest goes first."""
FINDINGS: Final = 1000
"""The findings about log directories that wait for the log of the node."""
REFUSED_NODES: Final = 100
"""The incarnations of nodes that are too old for the cluster of which a controller remembers that it has said so."""
FAILURES_NOTED: Final = 100
"""The unexpected failures of requests that wait for the log, which writes one line of a kind each second."""

# ------------------------------------------------------------------------------------------------------- the relations


def _takes_ms(of: Any, portion: str) -> float:
    """The time of a portion in ms, by the cost of one of its units."""
    return float(getattr(of, portion)) * COST_US[portion] / 1000


def _fits(portion: str) -> tuple[str, Callable[[Any], bool]]:
    return f"{portion} fits into a portion", lambda of: _takes_ms(of, portion) <= of.PORTION_MS


def _copies(size: str) -> tuple[str, Callable[[Any], bool]]:
    return f"{size} is copied in a portion", lambda of: getattr(of, size) / of.COPIED_BYTES_PER_MS <= of.PORTION_MS


RELATIONS: Final[dict[str, Callable[[Any], bool]]] = dict(
    (
        *(_fits(portion) for portion in COST_US),
        *(_copies(size) for size in COPIED),
        ("a portion and the room before it are one turn", lambda of: of.TURN_ROOM_MS + of.PORTION_MS <= of.TURN_MS),
        ("a start leaves as much as a turn", lambda of: 0 < of.START_ROOM_MS <= of.TURN_ROOM_MS),
        (
            "the early requests of a turn are decided in a turn",
            lambda of: of.EARLY_PER_TURN * of.STEPS_PER_DECISION <= of.DECISION_STEPS_PER_TURN,
        ),
        (
            "a single answer fits into a turn of answers",
            lambda of: of.MOST_TOLD <= of.ANSWERS_PER_TURN,
        ),
        ("a transaction of a store fits into a request", lambda of: 2 * of.TRANSACTION_BYTES <= of.BATCH_BYTES),
        ("a store remembers its last transaction", lambda of: of.TRANSACTION_BYTES < of.STORE_HISTORY_BYTES),
        ("a lease ends as a whole", lambda of: of.LEASE_KEYS < of.ENDED_AT_ONCE),
        ("a step of a lease's clock is no lease", lambda of: of.LEASE_STEP_MS < of.SHORTEST_LEASE_MS),
        ("what may be atomic fits into a batch", lambda of: of.RECORDS_PER_OPERATION <= of.RECORDS_PER_BATCH),
        (
            "a batch of a controller is decoded in a turn",
            lambda of: of.RECORDS_PER_BATCH <= of.DECODED_RECORDS_PER_TURN,
        ),
        ("a request for partitions is one operation", lambda of: of.PARTITIONS_PER_REQUEST <= of.RECORDS_PER_OPERATION),
        ("a run of elections is one operation", lambda of: of.ELECTIONS_PER_RUN <= of.RECORDS_PER_OPERATION),
        ("a run of removals is one operation", lambda of: of.TOKENS_PER_RUN <= of.RECORDS_PER_OPERATION),
        ("a leader takes a batch of records", lambda of: of.RECORDS_PER_BATCH <= of.UNCOMMITTED_RECORDS),
        ("a record more than a decision's batch still fits", lambda of: 2 * of.DECISION_BATCH_BYTES <= of.BATCH_BYTES),
        ("a batch of a snapshot is one of a log", lambda of: of.SNAPSHOT_BATCH_BYTES <= of.BATCH_BYTES),
        ("a piece of a state machine's snapshot fits", lambda of: 2 * of.MACHINE_PIECE_BYTES <= of.BATCH_BYTES),
        ("forwarded commands fit into a batch", lambda of: 2 * of.FORWARD_BYTES <= of.BATCH_BYTES),
        ("an observer is sent no more than a voter", lambda of: of.OBSERVER_ANSWER_BYTES <= of.BATCH_BYTES),
        ("a batch fits into a frame", lambda of: 2 * of.BATCH_BYTES <= of.FRAME_BYTES),
        ("a leader takes more than its program appends", lambda of: of.OUTSTANDING_APPEND_BYTES < of.UNCOMMITTED_BYTES),
        (
            "a turn of appends is encoded in a portion",
            lambda of: (of.APPENDED_BYTES_PER_TURN + of.APPEND_GROUP_WEIGHT) / 21 * 0.3 / 1000 <= of.PORTION_MS,
        ),
        ("a leader takes many batches", lambda of: 4 * of.BATCH_BYTES <= of.OUTSTANDING_APPEND_BYTES),
        (
            "what waits for a controller is counted as unanswered",
            lambda of: of.DECISIONS_WAITING + of.COMMITS_WAITING + of.FORWARDED_REQUESTS <= of.UNANSWERED_REQUESTS,
        ),
        ("what waits at a broker is counted as unanswered", lambda of: of.REQUESTS_WAITING <= of.UNANSWERED_REQUESTS),
        ("all that waits at a broker may be verified", lambda of: of.REQUESTS_WAITING <= of.VERIFICATIONS),
        ("forwarded entries come in whole requests", lambda of: of.FORWARD_ENTRIES <= of.FORWARDED_ENTRIES),
        ("the entries of a request fit into a session", lambda of: of.FORWARD_ENTRIES <= of.SESSION_WINDOW),
        ("requests without a connection are few", lambda of: of.ORPHANED_PRODUCES < of.REQUESTS_WAITING),
        ("what unpacks is looked at in every turn", lambda of: of.UNPACKED_AT_ONCE <= of.WAITING_PER_TURN),
        (
            "the session of a consumer fits into the half of consumers",
            lambda of: 2 * of.SESSION_CONSUMER_PARTITIONS * of.SESSION_PARTITION_BYTES <= of.SESSIONS_BYTES,
        ),
        (
            "a session is told of fewer strangers than it holds",
            lambda of: of.SESSION_UNKNOWN_PARTITIONS <= of.SESSION_CONSUMER_PARTITIONS,
        ),
        (
            "remembered verdicts take some megabytes",
            lambda of: 2 * of.VERDICTS * of.VERDICT_CHARACTERS <= 8 * of.MIB,
        ),
    )
)
"""Each relation of the numbers above, by what it says."""


def broken(of: Any) -> list[str]:
    """The relations that do not hold of a set of these numbers."""
    return [what for what, holds in RELATIONS.items() if not holds(of)]


assert not broken(sys.modules[__name__]), broken(sys.modules[__name__])
