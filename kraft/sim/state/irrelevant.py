"""The fields without influence on the future behaviour of a replica, each with its reason.

A test changes every other field of every object that a replica holds, and requires another fingerprint
(`tests/kraft/sim/test_fingerprints.py`).
"""

from __future__ import annotations

from typing import Final

from kraft.access.client_quotas import QuotaLimits
from kraft.broker.agent import BrokerAgent
from kraft.committed import Applying
from kraft.controller.controller import QuorumController
from kraft.controller.decision.mutations import MutationQuotas
from kraft.controller.decisions import Decisions, _UnderWay
from kraft.controller.features.controller_registration import Registrar
from kraft.process.process import Process
from kraft.quorum.accumulator import BatchAccumulator
from kraft.quorum.core import RaftCore
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import LeaderState
from kraft.rates import TokenBucket
from kraft.replica.applier import _Reading
from kraft.replica.commits import Commits
from kraft.replica.outbox import Outbox
from kraft.replica.peer_replies import HeldReply
from kraft.replica.rpc.rpc import Rpc
from kraft.replica.storage.snapshots import SnapshotCleaner, _Work
from kraft.state_machine.server import StateMachineServer
from metadata_log.log.log import MetadataLog

GIVEN: Final = "given at the start, and never changed"
DERIVED: Final = "follows from the other fields"
IRRELEVANT: Final[dict[type, dict[str, str]]] = {
    Process: {
        "options": GIVEN,
        "_beside": GIVEN,
    },
    Rpc: {
        "cluster_id": GIVEN,
        "listener": GIVEN,
        "_timeout_ms": GIVEN,
        "fetch_replies": "an answer that is made anew if another one is wanted",
    },
    Commits: {
        "_reads_batches": GIVEN,
    },
    Outbox: {
        "outputs": "empty between two steps",
        "follow_ups": "empty between two steps",
    },
    RaftCore: {
        "_election": "read by `begin` only, which a replica calls before it is handed out",
        "_deadline_ms": "a cache of what the state says",
        "_stepped_at_ms": "bounds that cache",
    },
    QuorumState: {
        "config": GIVEN,
        "longest_wait_ms": GIVEN,
        "check_quorum_ms": GIVEN,
        "local": GIVEN,
        "endpoints": GIVEN,
        "listener": GIVEN,
        "bootstrap": GIVEN,
        "voters": "a part of `history`",
        "is_voter": "follows from `history` and `local`",
        "is_only_voter": "follows from `history` and `local`",
        "_is_removed_last": "follows from `history` and `local`",
        "other_voter_ids": "follows from `history` and `local`",
        "contact_ids": "follows from `history`, `local` and `bootstrap`",
        "leader": "follows from `state`",
        "effects": "empty between two steps",
        "emit": "a method of `effects`",
    },
    BatchAccumulator: {
        "_linger_ms": GIVEN,
        "_max_batch_bytes": GIVEN,
        "pending_bytes": DERIVED,
    },
    LeaderState: {
        "local": GIVEN,
        "endpoints": GIVEN,
        "voters": "follows from the voters of the quorum",
        "is_voter": "follows from `voters` and `local`",
        "contacts_wanted": "follows from `voters` and `local`",
    },
    MetadataLog: {
        "control_batches": "read at the start only",
    },
    SnapshotCleaner: {
        "deadline_ms": DERIVED,
    },
    _Work: {
        "values": "an iterator; `taken` says where it is",
    },
    QuorumController: {
        "settings": GIVEN,
        "leftovers": "decides about memory only; `ControllerServer` says when a portion is due",
        "_imbalanced": "an iterator over an image that may be old",
        "_leaderless": "an iterator over an image that may be old",
        "_voter_ids": GIVEN,
        "_defaults": GIVEN,
    },
    MutationQuotas: {
        "_seconds": GIVEN,
    },
    QuotaLimits: {
        "quotas": "a part of an image, which follows from the log",
        "_limits": DERIVED,
    },
    TokenBucket: {
        "_seconds": GIVEN,
    },
    Registrar: {
        "_security_protocols": GIVEN,
        "_seen": "parts of an image, which follows from the log",
    },
    Decisions: {
        "_ahead": "what is missing here is replayed when the batch is appended",
    },
    _UnderWay: {
        "image": "follows from the log and the moment of its beginning",
        "result": "follows from the work and from `taken`",
        "records": "follows from the work and from `taken`",
        "values": "follows from the work and from `taken`",
        "replay": "follows from the work and from `taken`",
        "_bytes": "follows from the work and from `taken`",
        "_stream": "an iterator; `taken` says where it is",
    },
    Applying: {
        "replay": "follows from the log and from `count`",
        "values": "follows from the log",
        "_records": "an iterator; `count` says where it is",
        "through": GIVEN,
    },
    _Reading: {
        "_records": "an iterator; the length of `_values` says where it is",
    },
    HeldReply: {
        "_begin": "follows from `event`",
        "_basis": "follows from the log at the moment at which the judgement began",
        "_steps": "an iterator; `taken` says where it is",
    },
    StateMachineServer: {
        "codec": GIVEN,
        "_make": GIVEN,
        "_apply_to_machine": "a method of `machine`, perhaps watched",
        "_restore_machine": "a method of `machine`, perhaps watched",
        "_snapshot_machine": "a method of `machine`, perhaps watched",
    },
    BrokerAgent: {
        "settings": GIVEN,
        "_gathering": "an iterator over the image of the moment at which it began",
    },
}
