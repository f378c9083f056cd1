"""Where the network of the simulator promises less than a transport does: all that a transport may do can happen in
it, and what nodes build upon holds, whatever goes wrong.

What it promises like any other is in `test_contract`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from conversation import echo, numbered
from kraft.sim import Simulator
from kraft.sim.nodes.cluster import CLUSTER
from kraft.sim.nodes.frames import Frame
from kraft.sim.runs.brokers import Administration
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.voter_change_run import Reconfiguration
from simulated_transport import Talk, Talker
from transport import Cause, Failed, Inbound, Reply, Request
from transport.faults import NO_FAULTS, Faults
from transport.protocol.messages import VoteResponse
from transport.protocol.messages.vote import VoteRequest

BAD = Faults(drop=0.1, duplicate=0.2, delay_ms=(1, 100), slow=0.1, slow_ms=(100, 3000), reorder=True)
SERVER, CLIENT = 1, 2
TIMEOUT_MS = 1000


class Conversation:
    """A client that asks and a server that answers at once, if it is up; what each has received, and when."""

    def __init__(self, seed: int = 0, faults: Faults = NO_FAULTS) -> None:
        self.talk = Talk(2, seed, faults)
        self.simulator = self.talk.simulator
        self.seen: list[int] = []
        """The numbers of the requests that the server received."""
        self.outcomes: dict[int, tuple[int, Reply | Failed]] = {}
        """What became of each number, and when."""
        self.is_answering = True
        self.server.on_inbound = self._serve
        self.client.on_inbound = self._hear
        self.talk.start(SERVER)
        self.talk.start(CLIENT)

    @property
    def server(self) -> Talker:
        return self.talk.talkers[SERVER]

    @property
    def client(self) -> Talker:
        return self.talk.talkers[CLIENT]

    def _serve(self, inbound: Inbound) -> None:
        assert isinstance(inbound, Request)
        assert isinstance(inbound.message, VoteRequest)
        self.seen.append(int(inbound.message.cluster_id or "0"))
        if self.is_answering:
            self.server.answer(inbound, echo(inbound))

    def _hear(self, inbound: Inbound) -> None:
        assert isinstance(inbound, Reply | Failed)
        assert inbound.token not in self.outcomes, f"two outcomes of {inbound.token}"
        self.outcomes[inbound.token] = self.simulator.now_ms, inbound

    def ask(self, numbers: range) -> None:
        for number in numbers:
            self.client.ask(SERVER, number, numbered(number), TIMEOUT_MS)
        self.talk.send(CLIENT)

    def pass_time(self, duration_ms: int) -> None:
        self.simulator.run_until(self.simulator.now_ms + duration_ms)

    def replies(self) -> dict[int, int]:
        """The answer to each number that was answered."""
        heard = {one: heard.message for one, (_, heard) in self.outcomes.items() if isinstance(heard, Reply)}
        return {one: message.error_code for one, message in heard.items() if isinstance(message, VoteResponse)}

    def causes(self) -> Counter[Cause]:
        return Counter(heard.cause for _, heard in self.outcomes.values() if isinstance(heard, Failed))


@pytest.mark.parametrize("seed", range(5))
def test_every_request_has_one_outcome_by_its_timeout(seed: int) -> None:
    """Lost, late, repeated and overtaken: each request ends once, by its timeout, and with no answer but its own."""
    talking = Conversation(seed, BAD)
    for first in range(0, 200, 20):
        talking.ask(range(first, first + 20))
        talking.pass_time(50)
    talking.pass_time(TIMEOUT_MS)
    assert sorted(talking.outcomes) == list(range(200))
    asked_ms = {number: number // 20 * 50 for number in range(200)}
    assert all(at_ms <= asked_ms[number] + TIMEOUT_MS for number, (at_ms, _) in talking.outcomes.items())
    assert talking.replies() == {number: number for number in talking.replies()}
    assert set(talking.causes()) == {Cause.TIMEOUT}
    assert 20 < talking.causes()[Cause.TIMEOUT] < 120
    assert max(Counter(talking.seen).values()) == 2, "nothing was repeated"
    assert talking.seen != sorted(talking.seen), "nothing was overtaken"


@pytest.mark.parametrize("reorder", [False, True])
def test_messages_are_reordered_only_by_the_fault(reorder: bool) -> None:
    """In the order of a connection, as `MemoryNetwork` and TCP have it."""
    talking = Conversation(2, Faults(delay_ms=(1, 400), reorder=reorder))
    talking.ask(range(50))
    talking.pass_time(TIMEOUT_MS)
    assert sorted(talking.seen) == sorted(talking.replies()) == list(range(50))
    assert (talking.seen == list(range(50))) is not reorder
    assert (list(talking.outcomes) == list(range(50))) is not reorder


def test_a_new_connection_does_not_wait_for_messages_of_the_old_one() -> None:
    talking = Conversation(0, Faults(delay_ms=(5000, 5000)))
    talking.ask(range(1))
    talking.pass_time(TIMEOUT_MS)
    talking.simulator.faults.faults = Faults(delay_ms=(1, 1))
    talking.ask(range(1, 3))
    talking.pass_time(2)
    assert talking.replies() == {1: 1, 2: 2}
    talking.pass_time(5000)
    assert talking.seen == [1, 2, 0], "the server does not know that the client has given up"
    assert talking.causes() == {Cause.TIMEOUT: 1}


def _causes_of_absence(*, dies_over_it: bool) -> Counter[Cause]:
    causes: Counter[Cause] = Counter()
    for seed in range(40):
        talking = Conversation(seed)
        talking.is_answering = False
        if not dies_over_it:
            talking.talk.crash(SERVER)
        talking.ask(range(1))
        talking.pass_time(10)
        talking.talk.crash(SERVER)
        talking.pass_time(TIMEOUT_MS)
        assert len(talking.seen) == dies_over_it
        causes += talking.causes()
    return causes


@pytest.mark.parametrize("dies_over_it", [False, True])
def test_an_absent_node_may_be_noticed_or_not(dies_over_it: bool) -> None:
    """A process that ends resets and refuses, a machine without power is silent, and a middlebox may do either. Nodes
    must be right in every case; a refusal may only make them quicker.
    """
    causes = _causes_of_absence(dies_over_it=dies_over_it)
    assert set(causes) == {Cause.REFUSED, Cause.RESET, Cause.TIMEOUT}
    assert causes.total() == 40


def test_nothing_arrives_after_the_connection_was_lost() -> None:
    talking = Conversation(0, Faults(delay_ms=(20, 20)))
    talking.ask(range(3))
    talking.pass_time(30)
    talking.simulator.reset_connections(SERVER)
    assert talking.causes() == {Cause.RESET: 3}
    talking.pass_time(TIMEOUT_MS)
    assert talking.seen == [0, 1, 2], "they may have been acted upon"
    assert talking.replies() == {}
    talking.ask(range(3, 5))
    talking.pass_time(40)
    assert talking.replies() == {3: 3, 4: 4}


def test_a_restarted_node_receives_no_message_of_its_former_process() -> None:
    """Neither answers to the requests of the last life, although correlation ids begin anew, nor their failures."""
    talking = Conversation(0, Faults(delay_ms=(20, 20)))
    talking.ask(range(3))
    talking.pass_time(30)
    talking.talk.crash(CLIENT)
    talking.talk.start(CLIENT)
    talking.ask(range(2))
    talking.pass_time(15)
    assert talking.outcomes == {}
    talking.pass_time(TIMEOUT_MS)
    assert talking.replies() == {0: 0, 1: 1}
    assert talking.causes() == Counter()


def test_a_pending_response_is_lost_with_its_node() -> None:
    """The next life of a node does not answer requests to the last one; answers sent before arrive."""
    talking = Conversation(3, Faults(delay_ms=(20, 20)))
    talking.ask(range(1))
    talking.pass_time(20)
    talking.is_answering = False
    talking.ask(range(1, 2))
    talking.pass_time(20)
    talking.talk.crash(SERVER)
    talking.talk.start(SERVER)
    talking.pass_time(TIMEOUT_MS)
    assert talking.replies() == {0: 0}
    assert talking.causes().total() == 1


# The codecs


def _frames(kind: str, seed: int) -> Iterator[tuple[int, str, bool]]:
    """For every request and answer of a run: the sender, the kind, and whether the content is bytes."""
    brokers = 3 if kind == CLUSTER else 0
    scenario = Scenario.drawn(kind, 3, seed, brokers)
    work: Administration | Reconfiguration | None = None
    if kind == CLUSTER:
        work = Administration(seed, brokers)
    elif kind == "dynamic":
        work = Reconfiguration(scenario)
    simulator = Simulator(scenario, work=work)
    simulator.chaos(8000)
    for exchange in simulator.world.exchanges.values():
        assert isinstance(exchange.message, Frame)
        yield exchange.sender, exchange.kind, isinstance(exchange.message.body, bytes)
        for answer in exchange.answers:
            if answer is not None:
                assert isinstance(answer, Frame)
                yield exchange.target, f"{exchange.kind} answer", isinstance(answer.body, bytes)


@pytest.mark.parametrize(
    ("kind", "kinds"),
    [
        ("replica", {"Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "Fetch", "UpdateRaftVoter"}),
        ("dynamic", {"Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "Fetch", "FetchSnapshot"}),
        (CLUSTER, {"Fetch", "BrokerRegistration", "BrokerHeartbeat", "AlterPartition"}),
        ("state-machine", {"Fetch", "Envelope"}),
    ],
)
def test_in_some_seeds_all_messages_pass_through_the_codecs(kind: str, kinds: set[str]) -> None:
    """All that such a node sends, or nothing, which is quicker: then what cannot be written is not found."""
    encoded: Counter[str] = Counter()
    ways: Counter[bool] = Counter()
    for seed in range(12):
        by_sender: dict[int, set[bool]] = {}
        for sender, about, is_bytes in _frames(kind, seed):
            by_sender.setdefault(sender, set()).add(is_bytes)
            encoded[about] += is_bytes
        for way in by_sender.values():
            assert len(way) == 1, by_sender
            ways.update(way)
    assert min(ways[True], ways[False]) >= 4
    assert all(encoded[one] and encoded[f"{one} answer"] for one in kinds), encoded
