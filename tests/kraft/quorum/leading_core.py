"""One core that leads: the test plays the voters that fetch from it."""

from __future__ import annotations

from kraft.quorum.core import CoreStart
from kraft.quorum.events import Received
from kraft.quorum.messages import Fetch
from kraft.quorum.values import ElectionState, QuorumConfig, ReplicaKey, VersionRange
from kraft.quorum.voters import QuorumChange, Voter, VoterSet
from metadata_log.log.epochs import EpochHistory
from metadata_log.types import Uuid
from support.kraft.one_core import OneCore, at, endpoints


def fetch_all(one: OneCore, replica: ReplicaKey = ReplicaKey(1)) -> int:
    """Let a replica, by default the voter 1, fetch from the end of the leader's log; returns that offset."""
    epoch, end = one.core.epoch, one.core.log.end_offset
    fetch = Fetch(epoch=epoch, replica=replica, offset=end, last_epoch=epoch, max_wait_ms=0, max_bytes=1000)
    one.step(Received(1, fetch))
    return end


def key(node: int) -> ReplicaKey:
    return ReplicaKey(node, Uuid(bytes(8) + b"\x7f" + bytes(6) + bytes([node])))


def voter(node: int) -> Voter:
    return Voter(key(node), endpoints(node), VersionRange(0, 1))


def leader_of(*voters: int, linger_ms: int = 0) -> OneCore:
    """The node 2 as the leader of a dynamic quorum, with a commit of its epoch."""
    known = VoterSet(tuple(map(voter, voters)))
    start = CoreStart(
        election=ElectionState(epoch=5),
        log_start_offset=0,
        log_end_offset=100,
        epochs=EpochHistory((at(0, 5),)),
        changes=(QuorumChange(-1, 1), QuorumChange(-1, known)),
    )
    one = OneCore(local=key(2), voters=VoterSet(()), start=start, config=QuorumConfig(append_linger_ms=linger_ms))
    others = [node for node in voters if node != 2][: len(voters) // 2]
    one.elect(*others)
    for node in others:
        end = fetch_all(one, key(node))
    assert one.core.log.high_watermark == end
    return one
