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
from operator import attrgetter
from typing import Any, Final

from transport import limits as transport_limits
from transport.protocol.limits import MAX_FRAME_BYTES

MIB: Final = 1 << 20
FRAME_BYTES: Final = MAX_FRAME_BYTES
"""The largest frame, which bounds a request and an answer."""
transport: Final = transport_limits
"""The bounds of the connections of a transport, which relate to these."""

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
    "LOGS_OPENED_PER_STEP": 250,
    "DIRECTORIES_LOOKED_AT_PER_STEP": 100,
    "COORDINATOR_RECORDS_PER_STEP": 40,
    "COORDINATOR_UNITS_PER_TURN": 20,
    "PRODUCERS_PER_STEP": 1,
    "PRODUCERS_AT_ONCE": 1,
    "COMMITS_PER_STEP": 16,
    "OFFSETS_PER_TRANSACTION": 2.5,
    "OFFSETS_ENDED_PER_STEP": 40,
    "TOPICS_COMPARED_PER_STEP": 1,
    "MARKERS_PLACED_PER_TURN": 10,
    "MARKERS_PER_REQUEST": 10,
    "TRANSACTIONS_EXPIRED_AT_ONCE": 40,
    "SHARE_KEYS_PER_STEP": 2.5,
    "SHARE_SNAPSHOTS_AT_ONCE": 80,
    "SHARE_STATE_BATCHES": 2.5,
    "STATES_PER_REQUEST": 20,
    "STATE_BATCHES_PER_REQUEST": 2.5,
    "STATES_PLACED_PER_TURN": 120,
    "TRANSACTION_PARTITIONS": 2.5,
    "KEYS_CLEARED_AT_ONCE": 10,
    "STORE_KEYS": 1,
    "LEAVING_AT_ONCE": 100,
    "GROUP_MEMBERS": 5,
    "GROUP_PROTOCOLS": 0.5,
    "NAMED_TOPICS": 11,
    "SUBSCRIBED_TOPICS": 2.5,
    "GROUPS_PER_STEP": 20,
    "HEARTBEAT_TOPICS": 50,
    "HEARTBEAT_PARTITIONS": 2,
    "HASHES_PER_STEP": 50,
    "PARTITIONS_HASHED_PER_STEP": 5,
    "TARGET_TOPICS_PER_STEP": 10,
    "DRAFT_BYTES_PER_STEP": 1,
    "SHARE_PARTITIONS_PER_STEP": 5,
    "SHARE_OFFSETS_PER_REQUEST": 5,
    "SHARE_PARTITIONS_PER_GROUP": 1,
    "STATE_CALLS_AT_ONCE": 10,
    "LOG_ENDS_PER_REQUEST": 2.5,
    "TIMERS_CLEARED_PER_STEP": 10,
    "LARGE_TRANSACTION": 2.5,
    "UNSERVED_ENTRIES": 2.5,
    "STREAMS_MEMBERS_AT_ONCE": 50,
    "STREAMS_PARTITIONS_AT_ONCE": 20,
    "STREAMS_PARTITIONS_PER_GROUP": 1,
    "STREAMS_TASKS_PER_STEP": 15,
    "STREAMS_TOPICS_PER_STEP": 5,
    "STREAMS_TOPOLOGY_ITEMS": 2,
    "SHARE_RUNS": 0.6,
    "SHARE_LOCKS_LOOKED_AT": 0.6,
    "SHARE_RELEASES_PER_TURN": 40,
    "CLIENT_SERIES_PER_STEP": 50,
}
"""The microseconds that one counted thing takes, for each kind of portion, on a core of the machine of the benches. To
decode a record takes 2.4 us there, to replay it 1.9, to free a partition less than 0.1; the others are upper estimates,
which `bench/turns.py`, `bench/controller.py --what turns` and `tests/hostile` put to the test.
"""
WITHIN: Final[dict[str, tuple[float, str]]] = {
    "CHEAP_PER_STEP": (0.6, "DECISION_STEPS_PER_TURN"),
    "ELECTIONS_EXAMINED_PER_STEP": (2.5, "DECISION_STEPS_PER_TURN"),
    "ITEMS_PER_STEP": (0.15, "DECISION_STEPS_PER_TURN"),
    "CONFIGS_PER_STEP": (10, "METADATA_STEPS_PER_TURN"),
    "ITEMS_PER_ANSWER": (0.3, "ANSWERS_PER_TURN"),
    "PARTITIONS_PER_STEP": (7, "REQUEST_STEPS_PER_TURN"),
    "SHARE_TYPES_PER_STEP": (0.03, "REQUEST_STEPS_PER_TURN"),
    "SHARE_PIECES_PER_STEP": (8, "REQUEST_STEPS_PER_TURN"),
    "LETTERS_PER_STEP": (5, "REQUEST_STEPS_PER_TURN"),
    "MARKERS_PER_STEP": (60, "REQUEST_STEPS_PER_TURN"),
    "MARKERS_ANSWERED_PER_STEP": (3, "REQUEST_STEPS_PER_TURN"),
    "ADDITIONS_PER_STEP": (60, "REQUEST_STEPS_PER_TURN"),
    "SHARE_STATES_PER_STEP": (60, "REQUEST_STEPS_PER_TURN"),
    "TRANSACTIONS_PER_STEP": (1.9, "REQUEST_STEPS_PER_TURN"),
    "NAME_CHARACTERS_PER_STEP": (0.04, "METADATA_STEPS_PER_TURN"),
    "GLANCES_PER_UNIT": (1.2, "COORDINATOR_UNITS_PER_TURN"),
    "MEMBERS_PER_UNIT": (5, "COORDINATOR_UNITS_PER_TURN"),
    "GROUPS_FREED_PER_UNIT": (2, "COORDINATOR_UNITS_PER_TURN"),
    "PATTERN_WEIGHT_PER_UNIT": (0.2, "COORDINATOR_UNITS_PER_TURN"),
    "PATTERN_STEPS_PER_UNIT": (0.01, "COORDINATOR_UNITS_PER_TURN"),
    "PARTITIONS_PER_HASH": (0.5, "HASHES_PER_STEP"),
    "TELEMETRY_POINTS_PER_STEP": (10, "REQUEST_STEPS_PER_TURN"),
    "TELEMETRY_BYTES_PER_STEP": (0.06, "REQUEST_STEPS_PER_TURN"),
    "TELEMETRY_MATCH_PER_STEP": (0.01, "REQUEST_STEPS_PER_TURN"),
    "TELEMETRY_WEIGHT_PER_STEP": (0.2, "REQUEST_STEPS_PER_TURN"),
    "KEYS_AT_ONCE": (30, "REQUEST_STEPS_PER_TURN"),
}
"""The parts of one step or unit of another number: the microseconds that one such thing takes, and that number."""
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
CLIENT_SERIES_PER_STEP: Final = 200
"""The numbers of clients that one portion of a scrape looks at."""
TELEMETRY_POINTS_PER_STEP: Final = 50
"""The numbers of a client's push that are read in one step."""
TELEMETRY_BYTES_PER_STEP: Final = 8 << 10
"""The bytes of a metric that the library decodes in the time of a step."""
TELEMETRY_MATCH_PER_STEP: Final = 50_000
"""The states and bytes that a match of a client looks at in a step."""
TELEMETRY_WEIGHT_PER_STEP: Final = 2500
"""As much of a pattern of client metrics is compiled in a step."""
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
SHARE_TYPES_PER_STEP: Final = 16_000
"""The types of acknowledgements whose form a step checks."""
SHARE_PIECES_PER_STEP: Final = 32
"""The acknowledged runs of records that a step looks at."""
LETTERS_PER_STEP: Final = 100
"""The records for a dead-letter queue that a step reads or encodes."""
MARKERS_PER_STEP: Final = 8
"""The markers of transactions that a step writes: each is an append to a log."""
ADDITIONS_PER_STEP: Final = 8
"""The transactions to which a step adds partitions for a broker: each is an append to a log, too."""
SHARE_STATES_PER_STEP: Final = 8
"""The share partitions of a request to a share coordinator of which a step changes the state."""
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
DIRECTORIES_LOOKED_AT_PER_STEP: Final = 100
"""The partition directories of which a step of a start reads the topic id."""
LOGS_OPENED_PER_STEP: Final = 32
"""The logs and segments that a step of a start opens, where nothing has to be recovered or flushed."""
LOADED_BATCHES_PER_STEP: Final = 256
"""The batches of a partition whose headers a load reads in one step."""
COORDINATOR_RECORDS_PER_STEP: Final = 200
"""The records of a coordinator's log that a load decodes and replays in one step."""
SHARE_KEYS_PER_STEP: Final = 1000
"""The share partitions that a step of a coordinator looks at, for those of deleted topics, old ones, and the oldest."""
SHARE_SNAPSHOTS_AT_ONCE: Final = 200
"""The snapshots of share partitions, or tombstones, that a turn writes by itself."""
SHARE_STATE_BATCHES: Final = 10_000
"""The state batches of a share partition: a window of as many records as a group may have out, each with a state of its
own. Kafka bounds only the record.
"""
STATES_PER_REQUEST: Final = 500
"""The share partitions in a request of a broker to a share coordinator."""
STATE_BATCHES_PER_REQUEST: Final = 10_000
"""Their state batches; one share partition may have all of them."""
STATES_PLACED_PER_TURN: Final = 200
"""The share partitions of which a turn looks up the coordinators, or asks its own; and the answers that
it passes on.
"""
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

MARKERS_ANSWERED_PER_STEP: Final = 128
"""The markers of which a step makes the answer: a small request is one turn."""
UNSERVED_ENTRIES: Final = 10_000
"""A request with more groups or partitions has no answer, which would be a long turn; no client sends one."""
STEPS_PER_PIECE: Final = 3
"""The time to compress a piece, in steps."""
HEARTBEAT_TOPICS: Final = 500
"""The topics of a group from which on its targets are found in a turn of their own."""
HEARTBEAT_PARTITIONS: Final = 10_000
"""The partitions of the topics of a group from which on a heartbeat is handled in portions."""
HASHES_PER_STEP: Final = 200
"""The topics whose partitions and racks a step hashes."""
PARTITIONS_PER_HASH: Final = 100
"""How many further partitions take about the time of a topic."""
PARTITIONS_HASHED_PER_STEP: Final = 2000
"""The partitions of one topic whose racks a step hashes; each may have other brokers."""
TARGET_TOPICS_PER_STEP: Final = 1000
"""Of how many topics a portion writes the targets, which is at least the target of a member: some milliseconds."""
DRAFT_BYTES_PER_STEP: Final = 8 << 10
"""How many bytes of records are encoded in a portion, which is at least a record: some milliseconds."""
SHARE_PARTITIONS_PER_STEP: Final = 1000
"""The partitions of the topics of a share group that a portion looks at, or gives to members."""
SHARE_PARTITIONS_PER_GROUP: Final = 20_000
"""The share partitions of a group, which are all in one record, and in most operations on the group: so many take a
few milliseconds. A member gets none beyond these.
"""
SHARE_OFFSETS_PER_REQUEST: Final = 5000
"""The share partitions of which a request alters the offsets, in one operation."""
STREAMS_PARTITIONS_AT_ONCE: Final = 500
"""The partitions that the tasks of a streams group read, from which on a heartbeat is handled in portions."""
STREAMS_MEMBERS_AT_ONCE: Final = 200
"""The members of a streams group from which on it is, too."""
STREAMS_PARTITIONS_PER_GROUP: Final = 20_000
"""The partitions that the tasks of a streams group read: so many tasks may be in one record, and in most operations on
a member. A topology with more is refused, which Kafka bounds only by the size of a record.
"""
STREAMS_TASKS_PER_STEP: Final = 500
"""The tasks of a streams group that a portion gives to members, or looks at."""
STREAMS_TOPICS_PER_STEP: Final = 1000
"""The topics of a topology that a portion compares."""
STREAMS_TOPOLOGY_ITEMS: Final = 5000
"""The subtopologies, topics and settings of a topology: all are in one record, and compared when a member joins."""
STREAMS_CLIENT_TAGS: Final = 100
"""The tags of a member of a streams group. A program of Kafka Streams has no more than five."""
STREAMS_OFFSETS: Final = 500_000
"""The offsets of tasks that the members of the groups of one partition have told, and that the assignor remembers."""
STATE_CALLS_AT_ONCE: Final = 1000
"""The calls of share coordinators that the group coordinators of a broker have made, and that are not answered."""
STATE_CALLS_WAITING: Final = 100_000
"""The calls that may wait for these."""
LOG_ENDS_PER_REQUEST: Final = 5000
"""The partitions of which a request to another broker asks for the end of the log."""
OPERATION_BEGINNINGS: Final = 4
"""How often an operation begins, before its client is told to ask again: others change the group all the time."""
TIMERS_CLEARED_PER_STEP: Final = 100
"""The timers that a step forgets when a coordinator is closed."""
UNITS_PER_ENDED_GROUP: Final = 10
"""The units that the end of a transaction takes of a turn for each further group with offsets in it, or hundred of
them.
"""
GROUPS_FREED_PER_UNIT: Final = 10
"""The groups, with all that they have, that are freed in the time of a unit."""
LARGE_TRANSACTION: Final = 1000
"""The partitions of a transaction from which on each change of it has a turn of its own."""
SMALL_TRANSACTION: Final = 8
"""The partitions that a transaction may have even if the ids take as much memory as they may."""
PLAIN_METADATA: Final = 100
"""The characters beside an offset that are accepted also when there is no more room for groups."""
PATTERN_STEPS_PER_LOOK: Final = 300
"""The steps that a text takes besides those of its match, which is most of it for short patterns and texts."""
PATTERN_WEIGHT_PER_UNIT: Final = 100
"""How much of an expression is compiled in the time of a unit of a coordinator's budget."""

# -------------------------------------------------------------------------------------------- portions of a turn, bytes

COPIED: Final = (
    *("APPLIED_BYTES_PER_STEP", "SERVED_AT_ONCE_BYTES", "SNAPSHOT_BATCH_BYTES", "CLEANED_BYTES_PER_STEP"),
    *("SEGMENT_BYTES_PER_STEP", "MOVE_STEP_BYTES", "DECISION_BATCH_BYTES", "BATCH_BYTES", "OBSERVER_ANSWER_BYTES"),
    *(
        "LOADED_BYTES_PER_STEP",
        "KEPT_BYTES",
        "STORE_BYTES",
        "transport.ANSWER_TURN_BYTES",
        "transport.BULK_BYTES",
        "transport.VOTERS_BULK_BYTES",
    ),
    *("transport.SEAL_BYTES", "transport.MOST_READ_BYTES", "SHARE_READ_BYTES"),
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
"""The weight that makes such an expression long to compile: its characters, the counts of its repetitions, and 700 for
each class of Unicode. RE2 writes repetitions out before it looks at its memory: so much takes 20 ms.
"""
PATTERN_PROGRAM_BYTES: Final = MIB
"""The memory of a compiled expression, at most. None is kept from one turn to the next."""
PATTERN_STEPS: Final = 3_000_000
"""The states of an expression times the bytes of one text that it is matched with: a match cannot pause."""
PATTERN_STEPS_PER_UNIT: Final = 2000
"""The states and bytes that a match looks at in the time of a unit of `COORDINATOR_UNITS_PER_TURN`."""
PATTERN_UNITS_PER_PORTION: Final = 250
"""How many of these units a portion of matches has, of which a look for the topics of a group makes one in a turn."""
TELEMETRY_SUBSCRIPTIONS: Final = 500
"""The subscriptions of client metrics that a broker uses."""
TELEMETRY_PATTERN_WEIGHT: Final = 500_000
"""The weight of all their patterns, as `PATTERN_WEIGHT` counts it: their programs are kept."""
TELEMETRY_INSTANCES: Final = 16_384
"""The clients that a broker knows which ask for subscriptions (`ClientMetricsManager.CACHE_MAX_SIZE`)."""
SOFTWARE_NOTED: Final = 16_384
"""The connections of which the client's software is known."""
SOFTWARE_CHARACTERS: Final = 256
"""How much is kept of the name of a client, and of its software and version."""
TELEMETRY_FIELDS: Final = 20_000
"""The metrics of a push, and what they are grouped in."""
TELEMETRY_METRIC_BYTES: Final = 64 << 10
"""The bytes of one metric with all its points: the library decodes one at once, which takes 2 ms."""
TELEMETRY_SERIES_OF_CLIENT: Final = 10_000
"""The numbers that one client may push."""
TELEMETRY_SERIES: Final = 20_000
TELEMETRY_SERIES_BYTES: Final = 32 << 20
"""The numbers of all clients, and their bytes. Beyond them the client is forgotten that has pushed longest ago."""
TELEMETRY_LABELS: Final = 16
"""The labels of one number."""
TELEMETRY_LABEL_CHARACTERS: Final = 200
"""The characters of a label and of its value, and of the name of a metric."""
TELEMETRY_UNPACKED_BYTES: Final = 64 << 20
"""The bytes of all pushes that are unpacked at the same time; others wait."""
TRANSACTION_PARTITIONS: Final = 10_000
"""The partitions of one transaction: each one that is added writes all of them again. Kafka bounds only the record."""
TRANSACTION_STATE_BYTES: Final = 256 * MIB
"""The most memory of the transactional ids that a broker coordinates. Beyond that it accepts no new id, as clients
choose them.
"""
SHARE_STATE_BYTES: Final = 128 * MIB
"""The most memory of the share partitions that a broker coordinates. Beyond that it accepts no new one, and no further
state batches.
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

REGEX_PAUSE_MS: Final = 10_000
"""The least time between two looks at the names of all topics for one group."""
REGEX_PORTION_PAUSE_MS: Final = 1
"""When the next portion of a look at the names of all topics follows."""
SHARE_READ_BYTES: Final = MIB
"""How much a fetch of a share partition reads at once: what its member cannot get is not read."""
SHARE_LOCKS_LOOKED_AT: Final = 10_000
"""The runs of records that a turn looks at for locks that have ended; it ends with the share partition it is at."""
SHARE_RELEASES_PER_TURN: Final = 500
"""The share partitions that a turn releases of members whose connections are gone."""
SHARE_LOCKS_PAUSE_MS: Final = 20
"""The least time between two looks at the locks of a share partition."""
SHARE_SESSION_PARTITIONS: Final = 10_000
"""The partitions in one share session."""
SHARE_SESSIONS_PARTITIONS: Final = 100_000
"""Those of all share sessions of a broker. Kafka bounds only the sessions."""
SHARE_PARTITIONS: Final = 20_000
"""The share partitions in the memory of a broker. Beyond them the oldest of a group without members is forgotten."""
SHARE_RUNS: Final = 10_000
"""The runs of records with one state in a share partition, all of which a lock that ends looks at. Beyond them a member
cannot acknowledge a part of what it holds: a record batch of a producer may have any number of records.
"""
LOOKS_NOTED: Final = 20_000
LOOKS_NOTED_BYTES: Final = 8 << 20
"""Of how many groups, with names of how many bytes, it is known when their topics were looked at last: groups end
without a word, and clients choose the names.
"""
TOPIC_HASHES: Final = 20_000
"""How many hashes are kept: a member cannot get more topics, because their list must fit into a record."""
SHARED_PLACES: Final = 20_000
"""The topics and partitions of offsets that groups share as objects."""
LOADS_NOTED: Final = 1000
"""The loads that are remembered for the metrics."""
PARTITION_SHAPES: Final = 4096
"""The different partitions whose changes are remembered during a decision."""
REPORT_CHARACTERS: Final = 500
"""The maximum length of a report in characters."""
LISTENERS_PER_VOTER: Final = 64
"""The limit of endpoints of a voter, as every log and every snapshot holds them; no controller has more listeners."""

HELD_BYTES: Final[dict[str, int]] = {
    "VERDICTS": 600,
    "REMEMBERED_NAMES": 1200,
    "QUOTA_RATES": 1500,
    "CLIENT_ADDRESSES": 200,
    "ADDRESS_RANGES": 300,
    "TRANSACTION_GUARDS": 500,
    "FINDINGS": 1000,
    "REFUSED_NODES": 200,
    "FAILURES_NOTED": 1000,
    "OBSERVERS": 1000,
    "TOPICS_IN_CREATION": 1200,
    "LOOKS_NOTED": 200,
    "LOOKS_NOTED_BYTES": 1,
    "TOPIC_HASHES": 200,
    "SHARED_PLACES": 300,
    "LOADS_NOTED": 100,
    "PARTITION_SHAPES": 300,
    "SHARE_PARTITIONS": 1000,
    "SHARE_SESSIONS_PARTITIONS": 200,
    "REPORT_CHARACTERS": 4,
    "PATTERN_PROGRAM_BYTES": 1,
    "TELEMETRY_PATTERN_WEIGHT": 20,
    "TELEMETRY_INSTANCES": 1500,
    "SOFTWARE_NOTED": 1000,
    "TELEMETRY_SERIES_BYTES": 1,
    "TELEMETRY_UNPACKED_BYTES": 1,
}
"""The bytes of one thing that a broker or a controller remembers of strangers, at most, where these are few."""
STRANGERS_BYTES: Final = 1152 * MIB
"""The bytes that clients may make a broker keep for them, in all."""

# ------------------------------------------------------------------------------------------------------- the relations


def _takes_ms(of: Any, portion: str) -> float:
    """The time of a portion in ms, by the cost of one of its units."""
    return float(getattr(of, portion)) * COST_US[portion] / 1000


def _fits(portion: str) -> tuple[str, Callable[[Any], bool]]:
    return f"{portion} fits into a portion", lambda of: _takes_ms(of, portion) <= of.PORTION_MS


def _is_within(count: str) -> tuple[str, Callable[[Any], bool]]:
    cost_us, other = WITHIN[count]
    return f"{count} is within one of {other}", lambda of: getattr(of, count) * cost_us <= COST_US[other]


def _copies(size: str) -> tuple[str, Callable[[Any], bool]]:
    return f"{size} is copied in a portion", lambda of: attrgetter(size)(of) / of.COPIED_BYTES_PER_MS <= of.PORTION_MS


RELATIONS: Final[dict[str, Callable[[Any], bool]]] = dict(
    (
        *(_fits(portion) for portion in COST_US),
        *(_copies(size) for size in COPIED),
        *(_is_within(count) for count in WITHIN),
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
        ("a share session is one of many", lambda of: 2 * of.SHARE_SESSION_PARTITIONS <= of.SHARE_SESSIONS_PARTITIONS),
        ("locks are looked at soon after they have ended", lambda of: of.SHARE_LOCKS_PAUSE_MS <= of.TURN_MS),
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
        (
            "what is remembered of strangers is little",
            lambda of: 4 * sum(getattr(of, what) * size for what, size in HELD_BYTES.items()) <= of.STRANGERS_BYTES,
        ),
        (
            "what is kept of the software of a client is counted",
            lambda of: HELD_BYTES["SOFTWARE_NOTED"] >= 3 * of.SOFTWARE_CHARACTERS,
        ),
        (
            "each subscription may have a pattern",
            lambda of: of.TELEMETRY_SUBSCRIPTIONS * 1000 <= of.TELEMETRY_PATTERN_WEIGHT,
        ),
        ("one client pushes less than all may", lambda of: of.TELEMETRY_SERIES_OF_CLIENT <= of.TELEMETRY_SERIES),
        ("the numbers of a push are in its fields", lambda of: of.TELEMETRY_SERIES_OF_CLIENT <= of.TELEMETRY_FIELDS),
        (
            "the labels of a number fit into a metric",
            lambda of: 2 * of.TELEMETRY_LABELS * of.TELEMETRY_LABEL_CHARACTERS <= of.TELEMETRY_METRIC_BYTES,
        ),
        (
            "what clients store has a bound",
            lambda of: (
                of.GROUP_STATE_BYTES
                + of.TRANSACTION_STATE_BYTES
                + of.SHARE_STATE_BYTES
                + of.SESSIONS_BYTES
                + 2 * of.transport.BUDGET_BYTES
                <= of.STRANGERS_BYTES
            ),
        ),
        (
            "the name of a group is remembered as one of a topic",
            lambda of: of.REMEMBERED_CHARACTERS <= of.VERDICT_CHARACTERS,
        ),
        (
            "a forwarded request of any size is decided in a turn",
            lambda of: of.FRAME_BYTES / of.BYTES_PER_WEIGHT <= of.DECISION_STEPS_PER_TURN,
        ),
        (
            "a commit counts as the steps that it takes",
            lambda of: (
                of.COMMITS_PER_STEP * COST_US["COMMITS_PER_STEP"]
                <= of.STEPS_PER_COMMIT * COST_US["REQUEST_STEPS_PER_TURN"]
            ),
        ),
        ("a piece that is compressed is part of a turn", lambda of: of.STEPS_PER_PIECE <= of.REQUEST_STEPS_PER_TURN),
        (
            "the operations of a transaction of a store have room for their keys",
            lambda of: of.TRANSACTION_OPERATIONS * of.KEY_BYTES <= of.TRANSACTION_BYTES,
        ),
        ("a store forgets no transaction in part", lambda of: of.TRANSACTION_OPERATIONS <= of.STORE_HISTORY_EVENTS),
        ("what a store remembers is less than it holds", lambda of: of.STORE_HISTORY_BYTES <= of.STORE_BYTES),
        ("a watcher may be behind all that is remembered", lambda of: 2 * of.STORE_HISTORY_EVENTS <= of.UNREAD_CHANGES),
        ("each lease may hold a key", lambda of: of.LEASES <= of.STORE_KEYS),
        ("time passes more than once in a step of leases", lambda of: of.LEASE_TICK_MS < of.LEASE_STEP_MS),
        ("leases have a span", lambda of: of.SHORTEST_LEASE_MS < of.LONGEST_LEASE_MS),
        ("each session of a machine has a place in its group", lambda of: of.SESSION_WINDOW <= of.MACHINE_SESSIONS),
        ("the patterns of a request hold one of a client", lambda of: of.PATTERN_CHARACTERS <= of.MATCH_CHARACTERS),
        ("a pattern may have its characters", lambda of: of.PATTERN_CHARACTERS <= of.PATTERN_WEIGHT),
        (
            "a pattern is compiled in a turn of a coordinator",
            lambda of: of.PATTERN_WEIGHT / of.PATTERN_WEIGHT_PER_UNIT <= of.COORDINATOR_UNITS_PER_TURN,
        ),
        (
            "a match is no long turn",
            lambda of: (
                of.PATTERN_STEPS / of.PATTERN_STEPS_PER_UNIT * COST_US["COORDINATOR_UNITS_PER_TURN"] / 1000
                <= of.PORTION_MS
            ),
        ),
        (
            "a text that is short takes less than a unit",
            lambda of: of.PATTERN_STEPS_PER_LOOK < of.PATTERN_STEPS_PER_UNIT,
        ),
        (
            "a portion of matches leaves others room",
            lambda of: 2 * of.PATTERN_UNITS_PER_PORTION <= of.COORDINATOR_UNITS_PER_TURN,
        ),
        ("a look at all topics has time for its portions", lambda of: of.REGEX_PORTION_PAUSE_MS < of.REGEX_PAUSE_MS),
        (
            "an operation that begins anew ends before the next look",
            lambda of: of.OPERATION_BEGINNINGS * _takes_ms(of, "NAMED_TOPICS") <= of.REGEX_PAUSE_MS,
        ),
        ("a member of either kind names as many topics", lambda of: of.NAMED_TOPICS <= of.SUBSCRIBED_TOPICS),
        ("a heartbeat at once names fewer than any", lambda of: of.HEARTBEAT_TOPICS <= of.NAMED_TOPICS),
        ("members that never joined are fewer than members", lambda of: of.PENDING_MEMBERS <= of.GROUP_MEMBERS),
        ("members that leave at once are fewer, too", lambda of: of.LEAVING_AT_ONCE <= of.GROUP_MEMBERS),
        ("the offsets of one group fit", lambda of: of.OFFSETS_PER_GROUP * 400 <= of.GROUP_STATE_BYTES),
        (
            "the states of a group may wait to be asked for",
            lambda of: of.SHARE_PARTITIONS_PER_GROUP + of.STATE_CALLS_AT_ONCE <= of.STATE_CALLS_WAITING,
        ),
        ("a group has what a request alters", lambda of: of.SHARE_OFFSETS_PER_REQUEST <= of.SHARE_PARTITIONS_PER_GROUP),
        (
            "a large streams group is one that has portions",
            lambda of: of.STREAMS_PARTITIONS_AT_ONCE <= of.STREAMS_PARTITIONS_PER_GROUP,
        ),
        (
            "a large streams group has fewer members than any",
            lambda of: of.STREAMS_MEMBERS_AT_ONCE <= of.GROUP_MEMBERS,
        ),
        (
            "a member has fewer tags than a topology has settings",
            lambda of: of.STREAMS_CLIENT_TAGS <= of.STREAMS_TOPOLOGY_ITEMS,
        ),
        (
            "a member of a streams group may tell the offsets of all tasks",
            lambda of: 2 * of.STREAMS_PARTITIONS_PER_GROUP <= of.STREAMS_OFFSETS,
        ),
        (
            "a topology has room for the topics that it may name",
            lambda of: of.NAMED_TOPICS <= of.STREAMS_TOPOLOGY_ITEMS,
        ),
        ("the groups of one partition fit", lambda of: of.GROUPS_PER_PARTITION * 1200 <= of.GROUP_STATE_BYTES),
        (
            "assignments of a group fit even then",
            lambda of: of.ASSIGNMENT_BYTES_PER_MEMBER * of.GROUP_MEMBERS <= of.GROUP_STATE_BYTES,
        ),
        (
            "the metadata that is always taken is less than an assignment",
            lambda of: of.PLAIN_METADATA < of.ASSIGNMENT_BYTES_PER_MEMBER,
        ),
        ("a transaction commits more than one request", lambda of: of.COMMITS_PER_STEP <= of.OFFSETS_PER_TRANSACTION),
        (
            "a group whose transaction ends counts as its offsets",
            lambda of: (
                of.UNITS_PER_ENDED_GROUP * COST_US["COORDINATOR_UNITS_PER_TURN"] >= of.OFFSETS_ENDED_PER_STEP * 2
            ),
        ),
        ("a small transaction is no large one", lambda of: of.SMALL_TRANSACTION < of.LARGE_TRANSACTION),
        ("a transaction may be large", lambda of: of.LARGE_TRANSACTION <= of.TRANSACTION_PARTITIONS),
        ("long answers are repeated less than short ones", lambda of: of.REPEATED_GROUPS <= of.REPEATED_OFFSETS),
        (
            "offsets that are repeated fit into an answer",
            lambda of: 8 * of.REPEATED_OFFSETS * of.ASSIGNMENT_BYTES_PER_MEMBER <= of.FRAME_BYTES,
        ),
        (
            "a leader tracks more observers than a voter has listeners",
            lambda of: of.LISTENERS_PER_VOTER <= of.OBSERVERS,
        ),
        # The transport's.
        (
            "voters keep a share of the connections",
            lambda of: 8 * of.transport.RESERVED_CONNECTIONS <= of.transport.MAX_CONNECTIONS,
        ),
        (
            "those without a login are few",
            lambda of: 8 * of.transport.UNSECURED_CONNECTIONS <= of.transport.MAX_CONNECTIONS,
        ),
        ("connections that are held are few", lambda of: 8 * of.transport.HELD_AT_ONCE <= of.transport.MAX_CONNECTIONS),
        (
            "an address has a share of them",
            lambda of: 4 * of.transport.UNSECURED_PER_ADDRESS <= of.transport.UNSECURED_CONNECTIONS,
        ),
        (
            "handshakes hold less than requests",
            lambda of: of.transport.UNSECURED_CONNECTIONS * of.transport.HANDSHAKE_BYTES <= of.transport.BUDGET_BYTES,
        ),
        (
            "a turn of handshakes is no long one",
            lambda of: of.transport.HANDSHAKE_STEPS_PER_TURN * 1.5 <= of.PORTION_MS,
        ),
        (
            "small connections read on beside large ones",
            lambda of: of.transport.SMALL_BYTES * 32 <= of.transport.BUDGET_BYTES,
        ),
        ("a read is no more than a steady peer takes", lambda of: of.transport.READ_BYTES <= of.transport.STEADY_BYTES),
        ("a read grows", lambda of: of.transport.READ_BYTES <= of.transport.MOST_READ_BYTES),
        ("what is not counted is less than a read", lambda of: of.transport.COUNTED_BYTES < of.transport.READ_BYTES),
        (
            "a connection is closed after its place is given on",
            lambda of: of.transport.PLACE_SECONDS < of.transport.STALLED_SECONDS,
        ),
        (
            "a connection leaves others unsent bytes",
            lambda of: 4 * of.transport.UNSENT_PER_CONNECTION <= of.transport.BUDGET_BYTES,
        ),
        (
            "an answer leaves room for others",
            lambda of: 1 < of.transport.ANSWERS_IN_ROOM <= of.transport.BUDGET_BYTES / of.transport.BULK_BYTES,
        ),
        ("voters fetch more than strangers", lambda of: of.transport.BULK_BYTES <= of.transport.VOTERS_BULK_BYTES),
        (
            "a connection has a part of a turn",
            lambda of: of.transport.QUANTUM <= of.transport.QUEUED_REQUESTS <= of.transport.TURN_REQUESTS,
        ),
        (
            "connections that deliver at once stay within a turn",
            lambda of: of.transport.MEMBERS_AT_ONCE * of.transport.QUANTUM <= of.transport.TURN_REQUESTS,
        ),
        (
            "one connection does not fill a node",
            lambda of: 8 * of.transport.UNANSWERED_PER_CONNECTION <= of.UNANSWERED_REQUESTS,
        ),
    )
)
"""Each relation of the numbers above, by what it says."""


def broken(of: Any) -> list[str]:
    """The relations that do not hold of a set of these numbers."""
    return [what for what, holds in RELATIONS.items() if not holds(of)]


assert not broken(sys.modules[__name__]), broken(sys.modules[__name__])
