"""Copies worlds and replicas, so that an exploration can follow each of the enabled actions.

`kraft.sim.state.copier` copies field by field. Two kinds of classes need a rule of their own. A class with a file
refers to the file on the copied disk. Python cannot copy an iterator in progress: the copy gets a new iterator, moved
to the same place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy
from itertools import islice, tee
from typing import Any, Final, TypeVar

from kraft.access.failures import RequestFailures
from kraft.broker import BrokerAgent
from kraft.broker.registered import RegisteredBroker
from kraft.broker.server import BrokerServer
from kraft.committed import Applying, Through, WithImage
from kraft.controller import QuorumController
from kraft.controller.decisions import Decisions, _UnderWay
from kraft.controller.server import ControllerServer
from kraft.replica.applier import _Reading
from kraft.replica.peer_replies import HeldReply, PeerReplies
from kraft.replica.storage.snapshots import _Work as SnapshotWork
from kraft.sim.state.copier import COPIERS, Memo, declare, fork_fields, known_copy, note_copy, share
from kraft.state_machine import Codec
from kraft.state_machine.server import StateMachineServer
from metadata_log.image import MetadataImage
from metadata_log.image.replaying import EVERYTHING, SnapshotReplay
from metadata_log.log.log import FlushHandle
from metadata_log.memory_disk import MemoryDisk, MemoryFile, MemoryLock

T = TypeVar("T")
Registered = TypeVar("Registered", bound=RegisteredBroker)
_Tee: Final[type[Any]] = type(tee((), 1)[0])


def forked(value: T, memo: Memo | None = None) -> T:
    """An independent copy, which shares immutable objects with the original.

    `memo` has the copies so far, if the original shares objects with other originals. `TypeError` for an object without
    fields and rule, such as a generator.
    """
    copied: T = COPIERS[type(value)](value, {} if memo is None else memo)
    return copied


def _disk(disk: MemoryDisk, memo: Memo) -> MemoryDisk:
    """The copies share the contents of files until one of them changes a file."""
    copied = known_copy(disk, memo)
    if copied is None:
        copied = note_copy(disk, disk.fork(), memo)
    return copied


def _file(file: MemoryFile, memo: Memo) -> MemoryFile:
    """The same file of the copied disk, open if it was."""
    known = known_copy(file, memo)
    if known is not None:
        return known
    disk = forked(file._disk, memo)
    is_open = file._life == file._disk._life
    life = disk._life if is_open else -1
    made = note_copy(
        file, MemoryFile(disk, file._path, file._inode, life, writable=file._writable, has_begun=file._has_begun), memo
    )
    if is_open:
        disk._open[file._inode] = disk._open.get(file._inode, 0) + 1
    return made


def _lock(lock: MemoryLock, memo: Memo) -> MemoryLock:
    """The same lock of the copied disk, held if it was."""
    disk = forked(lock._disk, memo)
    made = MemoryLock(disk, lock._name)
    if lock._life == lock._disk._life:
        disk._locks[lock._name] = None
    else:
        made._life = -1
    return made


def _flush_handle(handle: FlushHandle, memo: Memo) -> FlushHandle:
    """A frozen struct with mutable fields."""
    return FlushHandle(forked(handle.file, memo), handle.offset, handle.generation, forked(handle.failure, memo))


def _snapshot_work(work: SnapshotWork, memo: Memo) -> SnapshotWork:
    """The values come from an image, so that a second iterator yields the same values."""
    values = islice(work.source(), work.taken, None)
    return SnapshotWork(forked(work.writer, memo), work.source, values, work.timestamp_ms, work.taken)


def _controller(controller: QuorumController, memo: Memo) -> QuorumController:
    """The two iterators read one image, which never changes."""
    known = known_copy(controller, memo)
    if known is not None:
        return known
    given = {name: _iterator(controller, name) for name in ("_imbalanced", "_leaderless")}
    return fork_fields(controller, memo, **given)


def _agent(agent: BrokerAgent, memo: Memo) -> BrokerAgent:
    """The iterator reads the image of the moment at which it began."""
    known = known_copy(agent, memo)
    return fork_fields(agent, memo, _gathering=_iterator(agent, "_gathering")) if known is None else known


def _iterator(owner: object, name: str) -> Iterator[Any] | None:
    """A copy of an iterator at the same position, made by `tee`; the owner gets the other iterator of the pair."""
    iterator: Iterator[Any] | None = getattr(owner, name)
    if iterator is not None and not isinstance(iterator, _Tee):
        (iterator,) = tee(iterator, 1)
        setattr(owner, name, iterator)
    return copy(iterator)


def fork_broker(server: Registered, memo: Memo) -> Registered:
    """The copy of the agent replays the pending records, which it has noted, into its own image."""
    known = known_copy(server, memo)
    if known is not None:
        return known
    agent, applying = forked(server.agent, memo), server._applying
    if applying is not None:
        applying = _applying(applying, agent, None if applying.through is None else agent.noted)
    return fork_fields(server, memo, _applying=applying)


def _reading(reading: _Reading, memo: Memo) -> _Reading:
    """The copy reads the records again, up to the same place."""
    made = _Reading(reading._batch, reading._where)
    made._values = reading._values.copy()
    made._records = islice(made._records, len(made._values), None)
    return made


def _peer_replies(replies: PeerReplies, memo: Memo) -> PeerReplies:
    """The copy judges the held replies again, up to the same place."""
    known = known_copy(replies, memo)
    if known is not None:
        return known
    made = fork_fields(replies, memo, held=deque())
    made.held.extend([_held_reply(held, made, memo) for held in replies.held])
    return made


def _held_reply(held: HeldReply, replies: PeerReplies, memo: Memo) -> HeldReply:
    made = HeldReply(held.event, held.asked, replies.judgement_of(held.event))
    made.taken, made.is_judged = held.taken, held.is_judged
    basis, steps = made._begin()
    # If the log has changed since, both the original and the copy judge the response anew in their next turn.
    if held.has_begun and basis == forked(held._basis, memo):
        for _ in range(held.taken):
            next(steps)
        made._basis, made._steps = basis, steps
    return made


def _controller_host(host: ControllerServer, memo: Memo) -> ControllerServer:
    """The copy of the controller repeats the decision in progress and replays it into its own image."""
    known = known_copy(host, memo)
    if known is not None:
        return known
    controller = forked(host.controller, memo)
    applying = None if host._applying is None else _applying(host._applying, controller)
    return fork_fields(host, memo, _decisions=_decisions(host._decisions, controller, memo), _applying=applying)


def _decisions(decisions: Decisions, controller: QuorumController, memo: Memo) -> Decisions:
    current, failures = decisions._current, forked(decisions._failures, memo)
    return fork_fields(
        decisions,
        memo,
        _current=None if current is None else _under_way(current, controller, failures, memo),
        _reads=deque(_under_way(read, controller, failures, memo) for read in decisions._reads),
        # The copy replays these records again when it needs them.
        _ahead=None,
    )


def _under_way(under_way: _UnderWay, controller: QuorumController, failures: RequestFailures, memo: Memo) -> _UnderWay:
    made = _UnderWay(under_way.work, controller, under_way.since_ms, failures)
    for _ in range(under_way.taken):
        next(made._stream)
    made.taken = under_way.taken
    made.records, made.values = forked(under_way.records, memo), forked(under_way.values, memo)
    made._bytes = under_way._bytes
    made.has_written = under_way.has_written
    return made


def _applying(applying: Applying, owner: WithImage, through: Through | None = None) -> Applying:
    """The copy has replayed the same records, into the image of the copied owner."""
    original = applying.replay
    replay = (
        SnapshotReplay(applying.end)
        if isinstance(original, SnapshotReplay)
        else owner.begin_committed(original.base_offset)
    )
    made = Applying(replay, applying.end, applying.values, applying.where, through=through)
    replay.go_on(islice(made.counted(), applying.count), EVERYTHING)
    return made


def _machine_host(host: StateMachineServer, memo: Memo) -> StateMachineServer:
    """The user's state machine may hold anything: its state goes by way of a snapshot."""
    known = known_copy(host, memo)
    if known is not None:
        return known
    machine = note_copy(host.machine, host._make(), memo)
    machine.restore(host.machine.snapshot())
    made = fork_fields(host, memo, _apply_to_machine=None, _restore_machine=None, _snapshot_machine=None)
    # The copy does not call the functions that watch the original's machine.
    made.watch(lambda _, function: function)
    return made


declare(
    {
        MemoryDisk: _disk,
        MemoryFile: _file,
        MemoryLock: _lock,
        FlushHandle: _flush_handle,
        SnapshotWork: _snapshot_work,
        PeerReplies: _peer_replies,
        _Reading: _reading,
        BrokerServer: fork_broker,
        BrokerAgent: _agent,
        QuorumController: _controller,
        ControllerServer: _controller_host,
        StateMachineServer: _machine_host,
        Codec: share,
        MetadataImage: share,
    }
)
