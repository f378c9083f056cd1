"""The recipes of a store on running nodes, under Trio's `MockClock`: what clients do, while nodes and clients fail.

Each client stands for a process with a node of its own. Nodes lose power and come back, are cut off, and hear nothing
for a while, so that answers are lost. Clients hang inside of their blocks, as in a process that was paused, also
until long after their lease. In every second seed clocks of nodes jump and run too fast.

Besides, some parties meet at barriers all the time, and once more when all is calm, after one of them has died.
"""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

import trio
from msgspec import Struct, field

import kraft
from kraft.store import Held
from kraft.testing import Cluster
from kraft.testing.faults import JumpingClock
from transport.causes import one_cause
from transport.faults import Faults

TTL = 3.0
PARTIES = 3
ROUNDS = 2
"""How often the parties of a barrier wait for each other, before they go to the next one."""


class Broken(AssertionError):
    """A recipe has broken its promise."""


class Resource(Struct):
    """What a lock guards. It refuses each token that is lower than one that it has seen."""

    highest: int = 0
    inside: dict[int, Held] = field(default_factory=dict)
    """Who is in a block, by token."""
    tokens: set[int] = field(default_factory=set)
    entered: int = 0
    written: int = 0
    refused: int = 0
    has_sound_clocks: bool = True

    def enter(self, held: Held, places: int) -> None:
        """A holder begins. A later one has a higher token, and with sound clocks no more rely on it than may."""
        if held.token in self.tokens:
            raise Broken(f"token {held.token} is given twice")
        self.tokens.add(held.token)
        self.inside[held.token] = held
        self.entered += 1
        relying = sorted(token for token, one in self.inside.items() if one.is_held)
        if self.has_sound_clocks and len(relying) > places:
            raise Broken(f"{relying} hold it at the same time")

    def write(self, held: Held, is_in_force: bool) -> None:
        """A holder writes with its token. The one in force is never refused, and no older one comes after it."""
        if held.token < self.highest:
            if is_in_force:
                raise Broken(f"token {held.token} is in force, and the resource has seen {self.highest}")
            self.refused += 1
            return
        self.highest = held.token
        self.written += 1

    def leave(self, held: Held) -> None:
        """A holder has left its block."""
        del self.inside[held.token]


class Meeting:
    """Who has come to a barrier, and who has left it, counted beside the barrier.

    An opening is for parties that have all come, each counted for one opening alone, and none of them leaves twice by
    it. So a party that leaves for the r-th time has seen r openings, for which r times as many arrivals are needed.
    """

    def __init__(self) -> None:
        self.came = 0
        """The arrivals that a barrier may have counted."""
        self.left = [0] * PARTIES
        """How often each party has left."""
        self.lost = 0
        """The arrivals that have failed. The barrier may have counted them before."""

    def leave(self, party: int) -> None:
        """A party leaves."""
        self.left[party] += 1
        needed = max(self.left) * PARTIES
        if needed > self.came:
            raise Broken(
                f"a party leaves round {self.left[party]}: {needed} must have come so far, and {self.came} have"
            )


class World:
    """A cluster with clients. `seed` draws what all of them do, and what strikes them."""

    def __init__(self, seed: int, cluster: Cluster, *, has_sound_clocks: bool) -> None:
        self.rng = Random(f"recipes {seed}")
        self.seed = seed
        self.cluster = cluster
        self.has_sound_clocks = has_sound_clocks
        self.lock = Resource(has_sound_clocks=has_sound_clocks)
        self.pool = Resource(has_sound_clocks=has_sound_clocks)
        self.seat = Resource(has_sound_clocks=has_sound_clocks)
        self.put: set[bytes] = set()
        """What was put into the queue, perhaps."""
        self.taken: list[bytes] = []
        self.sums: list[int] = []
        self.additions = 0
        """The additions that were begun."""
        self.met = 0
        """How often a party has left a barrier."""
        self.calm = trio.Event()

    def machine(self) -> kraft.StoreMachine:
        """The state of the node that has applied most: what is in force."""
        found: list[Any] = [self.cluster.machine(one).machine for one in self.cluster.running]
        newest: kraft.StoreMachine = max(found, key=lambda one: int(one.revision))
        return newest

    def store(self, rng: Random) -> kraft.Store | None:
        """A store at a node that runs."""
        running = self.cluster.running
        return kraft.Store(self.cluster.machine(rng.choice(running))) if running else None

    async def hold(self, rng: Random, held: Held, resource: Resource, places: int) -> None:
        """Be in a block of a lock, and write with its token; perhaps hang, longer than the lease."""
        resource.enter(held, places)
        try:
            for _ in range(rng.randrange(1, 4)):
                if rng.random() < 0.1 and not self.calm.is_set():
                    with trio.CancelScope(shield=True):
                        await trio.sleep(rng.random() * 3 * TTL)
                else:
                    await trio.sleep(rng.random())
                if places == 1:
                    resource.write(held, self.machine().get(held.key) is not None and held.is_held)
        finally:
            resource.leave(held)

    async def act(self, rng: Random) -> None:
        """Do one thing with one recipe."""
        store = self.store(rng)
        if store is None:
            return
        match rng.choice(("lock", "lock", "lock", "election", "semaphore", "counter", "put", "get")):
            case "lock":
                async with kraft.Lock(store, "it", TTL) as held:
                    await self.hold(rng, held, self.lock, 1)
            case "semaphore":
                async with kraft.Semaphore(store, "pool", 2, TTL) as held:
                    await self.hold(rng, held, self.pool, 2)
            case "election":
                election = kraft.Election(store, "seat", TTL)
                async with election.campaign(b"me") as held:
                    leader = await election.leader()
                    if held.is_held and leader is not None and leader.token < held.token:
                        raise Broken(f"{held.token} leads, and {leader.token} is told to")
                    await self.hold(rng, held, self.seat, 1)
            case "counter":
                self.additions += 1
                self.sums.append(await kraft.Counter(store, "sum").add())
            case "put":
                value = b"%d" % len(self.put)
                self.put.add(value)
                await kraft.Queue(store, "mail").put(value)
            case "get":
                with trio.move_on_after(2):
                    self.taken.append(await kraft.Queue(store, "mail").get())

    async def client(self, number: int) -> None:
        """Do one thing after the other, with patience, until it is calm, and one more then."""
        rng = Random(f"client {self.seed} {number}")
        while True:
            was_calm = self.calm.is_set()
            await trio.sleep(rng.random())
            try:
                with trio.move_on_after(60) as patience:
                    await self.act(rng)
            except (kraft.NodeStopped, kraft.LeaseLost):
                continue
            if was_calm and patience.cancelled_caught:
                raise Broken("it is calm, and somebody waits for a minute")
            if was_calm:
                return

    async def wait(self, rng: Random, name: str, meeting: Meeting, party: int) -> None:
        """Come to a barrier, and leave it; perhaps give up before."""
        store = self.store(rng)
        if store is None:
            return
        meeting.came += 1
        gives_up = rng.random() < 0.1 and not self.calm.is_set()
        try:
            with trio.move_on_after(rng.random() * 2 * TTL if gives_up else 60) as waiting:
                await kraft.Barrier(store, name, PARTIES, TTL).wait()
        except (kraft.NodeStopped, kraft.LeaseLost):
            meeting.lost += 1
            return
        if not waiting.cancelled_caught:
            meeting.leave(party)
            return
        if self.calm.is_set() and not meeting.lost and not gives_up:
            raise Broken("it is calm, and a party waits for a minute")
        meeting.lost += 1

    async def party(self, name: str, meeting: Meeting, party: int) -> None:
        """Wait for the others, round after round. If one was counted and does not know it, the others come no more."""
        rng = Random(f"party {self.seed} {name} {party}")
        while meeting.left[party] < ROUNDS and not (self.calm.is_set() and meeting.lost):
            # Who comes back at once may find places of those who have not quite left.
            await trio.sleep(rng.random() * rng.choice((0.1, 2)))
            await self.wait(rng, name, meeting, party)

    async def meetings(self) -> None:
        """Meet at one barrier after the other, until it is calm."""
        for number in count():
            if self.calm.is_set():
                return
            meeting = Meeting()
            with trio.move_on_after(20):
                async with trio.open_nursery() as nursery:
                    for party in range(PARTIES):
                        nursery.start_soon(self.party, f"start {number}", meeting, party)
            self.met += sum(meeting.left)

    async def last_meeting(self) -> None:
        """When it is calm: one party comes and dies, the others come and wait for it, and it comes again.

        Nothing is lost on the network by now, so that leases are renewed in time.
        """
        self.cluster.network.plan.faults = Faults(delay_ms=(1, 80), reorder=True)
        for number in count():
            meeting, name = Meeting(), f"end {number}"
            dying = self.rng.choice(self.cluster.ids)
            store = kraft.Store(self.cluster.machine(dying))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._die, dying)
                try:
                    await kraft.Barrier(store, name, PARTIES, TTL).wait()
                except (kraft.NodeStopped, kraft.LeaseLost):
                    pass
                else:
                    raise Broken("one party has come, and leaves")
            await trio.sleep(10 * TTL)
            async with trio.open_nursery() as nursery:
                for party in range(1, PARTIES):
                    nursery.start_soon(self.party, name, meeting, party)
                await trio.sleep(4 * TTL)
                nursery.start_soon(self.party, name, meeting, 0)
            if not meeting.lost:
                self.met += sum(meeting.left)
                return

    async def _die(self, node_id: int) -> None:
        await trio.sleep(1)
        await self.cluster.kill(node_id)
        await self.cluster.restart(node_id)

    async def strike(self) -> None:
        """One fault, and its end."""
        rng, cluster = self.rng, self.cluster
        faults = ("kill", "cut", "cut-leader", "nothing", *(() if self.has_sound_clocks else ("jump", "fast")))
        node_id = rng.choice(cluster.ids)
        seconds = rng.random() * 3 * TTL
        match rng.choice(faults):
            case "kill":
                await cluster.kill(node_id)
                await trio.sleep(seconds)
                if not self.has_sound_clocks:
                    # The clock of the machine was set meanwhile: what begins now has another time than the others.
                    set_to = cluster._clock.now_ms() + rng.choice((0, -2_000, 2_000, 60_000, 3_600_000))
                    cluster._clock = JumpingClock(set_to)
                await cluster.restart(node_id)
            case "cut":
                cluster.network.partition({node_id}, cluster.others(node_id))
                await trio.sleep(seconds)
                cluster.network.heal()
            case "cut-leader":
                leader = cluster.node(node_id).status().leader.leader_id
                if leader > 0:
                    cluster.network.partition({leader}, cluster.others(leader))
                    await trio.sleep(seconds)
                    cluster.network.heal()
            case "jump" | "fast" as what:
                clock = cluster._clock
                assert isinstance(clock, JumpingClock), clock
                if what == "jump":
                    clock.ahead_ms += rng.choice((2_000, 60_000, 3_600_000))
                for _ in range(40):
                    clock.ahead_ms += 100
                    await trio.sleep(0.1)

    def check(self) -> None:
        """What must hold at the end."""
        if len(set(self.taken)) != len(self.taken):
            raise Broken(f"a value was taken twice: {self.taken}")
        if not set(self.taken) <= self.put:
            raise Broken(f"what was taken was never put: {set(self.taken) - self.put}")
        if len(set(self.sums)) != len(self.sums):
            raise Broken(f"two additions have the same sum: {sorted(self.sums)}")
        if self.sums and max(self.sums) > self.additions:
            raise Broken(f"{self.additions} additions make {max(self.sums)}")


async def run_recipes(seed: int, seconds: float = 40, clients: int = 4) -> World:
    """Run a seed, and check it. Every second seed has sound clocks."""
    faults = Faults(drop=0.03, delay_ms=(1, 80), reorder=True)
    with trio.fail_after(3600):
        async with Cluster(controllers=3, seed=seed, state_machine=kraft.StoreMachine, faults=faults) as cluster:
            await cluster.leader()
            world = World(seed, cluster, has_sound_clocks=seed % 2 == 0)
            with one_cause():
                async with trio.open_nursery() as nursery:
                    for number in range(clients):
                        nursery.start_soon(world.client, number)
                    nursery.start_soon(world.meetings)
                    ends = trio.current_time() + seconds
                    while trio.current_time() < ends:
                        await trio.sleep(world.rng.random() * 5)
                        await world.strike()
                    world.calm.set()
                await world.last_meeting()
            world.check()
            cluster.check()
    return world
