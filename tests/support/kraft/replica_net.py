"""Replicas over memory disks, joined by a network that delivers everything at once, in order, in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kraft.calls import Call, Returned
from kraft.committed import Committed, CommittedBatch, Noted
from kraft.controller.decision.request_context import DecisionSettings
from kraft.process.hosting import host_raw_log
from kraft.process.opening import open_process
from kraft.process.options import ProcessOptions
from kraft.process.parts import ApplicationFactory, Input
from kraft.process.process import Process
from kraft.quorum.events import FailureCause, Tick
from kraft.quorum.values import Endpoints, ListenerAddress, QuorumConfig
from kraft.quorum.voters import VoterSet
from kraft.replica.interface.events import FlushDone, Output, StartFlush, Submit, SubmitDone, Trace
from kraft.replica.interface.options import ReplicaOptions
from kraft.wire import Answer, Drop, Part, WireFailed, WireReply, WireRequest, WireSend
from metadata_log.log.log_dir import format_directory
from metadata_log.memory_disk import MemoryDisk
from metadata_log.serde import Message, decode, encode
from transport.protocol.apis import APIS
from transport.protocol.broker_apis import ALL_APIS

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAkrD"
START_MS = 1_800_000_000_000
DIRECTORY = "/data"


def voter_set(count: int) -> VoterSet:
    return VoterSet.parse(",".join(f"{node}@n{node}:9093" for node in range(1, count + 1)))


def options(node_id: int, voters: VoterSet, **changes: Any) -> ProcessOptions:
    known: dict[str, Any] = {
        "directory": DIRECTORY,
        "node_id": node_id,
        "cluster_id": CLUSTER_ID,
        "voters": voters,
        "endpoints": Endpoints((ListenerAddress("CONTROLLER", f"n{node_id}", 9093),)),
        "quorum": QuorumConfig(append_linger_ms=0),
    }
    idle_ms = changes.pop("max_idle_interval_ms", None)
    of_process = {name: changes.pop(name) for name in ProcessOptions.__struct_fields__ if name in changes}
    if idle_ms is not None:
        decisions = of_process.get("decisions", DecisionSettings())
        of_process["decisions"] = replace(decisions, max_idle_interval_ms=idle_ms)
    known["may_vote"] = of_process.get("broker") is None or of_process.get("client_endpoints") is not None
    return ProcessOptions(replica=ReplicaOptions(**{**known, **changes}), **of_process)


def formatted_disk(node_id: int, release: str = "4.3-IV0", cluster_id: str = CLUSTER_ID) -> MemoryDisk:
    disk = MemoryDisk()
    format_directory(
        disk, DIRECTORY, node_id=node_id, cluster_id=cluster_id, rng=Random(node_id), now_ms=START_MS, release=release
    )
    return disk


class Net:
    """A few nodes. Everything a step sends is delivered before time goes on, through the real codecs."""

    def __init__(
        self,
        count: int = 3,
        *,
        application: ApplicationFactory = host_raw_log,
        seed: int = 1,
        disks: dict[int, MemoryDisk] | None = None,
        voters: VoterSet | None = None,
        **changes: Any,
    ) -> None:
        self.now_ms = START_MS
        self.voters = voter_set(count) if voters is None else voters
        self.application = application
        self.changes = changes
        self.rng = Random(seed)
        self.disks = disks or {node: formatted_disk(node) for node in range(1, count + 1)}
        self.processes: dict[int, Process] = {}
        self.cut: set[int] = set()
        self.unreachable: set[tuple[int, str]] = set()
        """A node, and a host name at which the node reaches no other node."""
        self.queue: deque[Callable[[], None]] = deque()
        self.committed: dict[int, list[CommittedBatch]] = {}
        self.done: dict[int, SubmitDone] = {}
        self.returned: dict[int, Struct] = {}
        self.noted: list[tuple[int, Struct]] = []
        self.answers: dict[int, Any] = {}
        self.traces: list[tuple[int, object]] = []
        self.dropped: list[int] = []
        self.on_the_way: Callable[[int, Message], Message] = lambda node, answer: answer
        """What becomes of a node's answer to another node."""
        self._asked: dict[int, tuple[int, Process | None, WireSend | None, type[Message], int]] = {}
        self._next_id = 1
        for node in self.disks:
            self.start(node)

    def start(self, node: int) -> None:
        self.committed[node] = []
        process, outputs = open_process(
            options=options(node, self.voters, **self.changes),
            disk=self.disks[node],
            rng=Random(self.rng.getrandbits(64)),
            application=self.application,
            now_ms=self.now_ms,
        )
        self.processes[node] = process
        self._carry_out(node, outputs)

    def kill(self, node: int, *, torn: Random | None = None) -> None:
        """The power of a node fails: what was not fsynced is gone."""
        del self.processes[node]
        self.disks[node].crash(torn)

    def step(self, node: int, event: Input) -> None:
        process = self.processes.get(node)
        if process is not None:
            self._carry_out(node, process.step(event, self.now_ms))

    def settle(self) -> None:
        """Deliver everything, and tick every replica with a due deadline, until nothing is left to do now."""
        for _ in range(20_000):
            if not self.once():
                return
        raise AssertionError("the network never comes to rest")

    def once(self) -> bool:
        """Deliver one message, or tick one replica with a due deadline; false if nothing is left to do now."""
        if self.queue:
            self.queue.popleft()()
            return True
        due = [node for node, one in self.processes.items() if one.deadline_ms() <= self.now_ms]
        for node in due:
            self.step(node, Tick())
        return bool(due)

    def advance(self, ms: int) -> None:
        """Let time pass, deadline by deadline."""
        end = self.now_ms + ms
        self.settle()
        while (next_ms := min(one.deadline_ms() for one in self.processes.values())) <= end:
            self.now_ms = max(self.now_ms, next_ms)
            self.settle()
        self.now_ms = end

    def until(self, condition: Callable[..., bool], most_ms: int = 20_000) -> None:
        end = self.now_ms + most_ms
        self.settle()
        while not condition():
            assert self.now_ms < end, "it never happens"
            self.advance(10)

    @property
    def leader(self) -> int:
        """The one leader of the newest epoch."""
        leaders = {
            one.replica.core.epoch: node for node, one in sorted(self.processes.items()) if one.replica.core.is_leader
        }
        return leaders[max(leaders)] if leaders else 0

    def elect(self) -> int:
        """Wait until a leader has committed its first record, and every reachable node follows that leader."""
        reachable = [node for node in self.processes if node not in self.cut]

        def is_led() -> bool:
            leader = self.leader
            if leader not in reachable:
                return False
            core = self.processes[leader].replica.core
            return core.log.high_watermark > core.epoch_start_offset and all(
                self.processes[node].replica.core.leader == core.leader
                and self.processes[node].replica.core.log.high_watermark == core.log.high_watermark
                for node in reachable
            )

        self.until(is_led)
        return self.leader

    def submit(self, node: int, *values: bytes) -> int:
        submit_id = self._new_id()
        self.step(node, Submit(submit_id, list(values)))
        return submit_id

    def call(self, node: int, ask: Struct) -> int:
        call_id = self._new_id()
        self.step(node, Call(call_id, ask))
        return call_id

    def request(self, node: int, message: Message, version: int | None = None, listener: str = "CONTROLLER") -> int:
        """Ask a node as a client would, bytes and all."""
        schema = type(message).__schema__
        api = ALL_APIS[schema.api_key or 0]
        version = api.versions.highest if version is None else version
        request_id = self._new_id()
        self._asked[request_id] = (0, None, None, api.response, version)
        self._deliver(node, request_id, message, version, listener)
        return request_id

    def ask(self, node: int, message: Message, version: int | None = None, listener: str = "CONTROLLER") -> Any:
        """Ask, and wait for the answer."""
        request_id = self.request(node, message, version, listener)
        self.until(lambda: request_id in self.answers)
        return self.answers.pop(request_id)

    def log_of(self, node: int) -> bytes:
        """The whole log of a node, byte for byte."""
        return self.disks[node].read(f"{DIRECTORY}/__cluster_metadata-0/00000000000000000000.log")

    def values_of(self, node: int) -> list[bytes]:
        """Every committed value that the host of a raw log received since its start."""
        return [value for batch in self.committed[node] for value in batch.values]

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _deliver(
        self, node: int, request_id: int, message: Message, version: int, listener: str = "CONTROLLER"
    ) -> None:
        cls = type(message)
        api_key = cls.__schema__.api_key or 0
        data = encode(message, version)

        def arrive() -> None:
            request = WireRequest(
                request_id=request_id,
                api_key=api_key,
                version=version,
                message=decode(cls, version, data),
                listener=listener,
            )
            self.step(node, request)

        self.queue.append(arrive)

    def _send(self, source: int, sent: WireSend) -> None:
        # The addresses of a real cluster say nothing here; "b1" is another name of "n1".
        host = sent.target.host
        target = int(host[1:]) if host[:1] in ("n", "b") else sent.target.node_id
        is_lost = source in self.cut or target in self.cut or (source, host) in self.unreachable
        if target not in self.processes or is_lost:
            self.queue.append(lambda: self.step(source, WireFailed(sent.request_id, FailureCause.TIMEOUT)))
            return
        schema = type(sent.message).__schema__
        api = APIS[schema.api_key or 0]
        request_id = self._new_id()
        asker = self.processes.get(source)
        self._asked[request_id] = (source, asker, sent, api.response, api.versions.highest)
        self._deliver(target, request_id, sent.message, api.versions.highest)

    def _answer(self, node: int, answer: Answer) -> None:
        source, asker, sent, cls, version = self._asked.pop(answer.request_id)
        message = decode(cls, version, encode(answer.message, version))
        if sent is None:
            self.answers[answer.request_id] = message
        elif sent.part is not Part.QUORUM and not self.cut.isdisjoint((source, node)):
            self.queue.append(lambda: self.step(source, WireFailed(sent.request_id, FailureCause.TIMEOUT)))
        elif self.cut.isdisjoint((source, node)):
            message = self.on_the_way(node, message)

            def arrive() -> None:
                if self.processes.get(source) is asker:
                    self.step(source, WireReply(sent.request_id, message))

            self.queue.append(arrive)

    def _flush(self, node: int, flush: StartFlush) -> None:
        replica = self.processes[node]

        def finish() -> None:
            if self.processes.get(node) is replica:
                flush.run()
                self.step(node, FlushDone(flush.ticket))

        self.queue.append(finish)

    def _carry_out(self, node: int, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case WireSend():
                    self._send(node, output)
                case Answer():
                    self._answer(node, output)
                case StartFlush():
                    if self.processes.get(node) is None:
                        raise AssertionError("a flush before the replica is there")
                    self._flush(node, output)
                case SubmitDone():
                    self.done[output.submit_id] = output
                case Committed():
                    self.committed[node].append(output.batch)
                case Returned():
                    self.returned[output.call_id] = output.outcome
                case Noted():
                    self.noted.append((node, output.what))
                case Trace():
                    self.traces.append((node, output.effect))
                case Drop():
                    self.dropped.append(output.request_id)
