"""A replicated state with a rule of its own: no account falls below zero, and a power failure loses nothing.

In a checkout:

    $ python3 examples/account_machine.py
    ann has 70
    refused: ann has only 70
    after a power failure of the leader: ann has 70
"""

import trio
from msgspec import Struct, msgpack
from trio.testing import MockClock

import kraft
from kraft.testing import Cluster


class Pay(Struct, frozen=True):
    """Change the amount of an account."""

    account: str
    amount: int


class Accounts(kraft.StateMachine[Pay, dict[str, int]]):
    def __init__(self) -> None:
        self.amounts: dict[str, int] = {}

    def apply(self, command: Pay, at: kraft.Position) -> dict[str, int]:
        before = self.amounts.get(command.account, 0)
        if before + command.amount < 0:
            raise kraft.CommandRefused(f"{command.account} has only {before}")
        self.amounts[command.account] = before + command.amount
        return dict(self.amounts)

    def snapshot(self) -> bytes:
        return msgpack.encode(self.amounts)

    def restore(self, data: bytes) -> None:
        self.amounts = msgpack.decode(data, type=dict[str, int])

    def value(self) -> dict[str, int]:
        return dict(self.amounts)


async def main() -> None:
    async with Cluster(controllers=3, state_machine=Accounts) as cluster:
        await cluster.machine(1).submit(Pay("ann", 100))
        print("ann has", (await cluster.machine(2).submit(Pay("ann", -30)))["ann"])
        try:
            await cluster.machine(3).submit(Pay("ann", -80))
        except kraft.CommandRefused as refused:
            print("refused:", refused)
        leader = await cluster.leader()
        await cluster.kill(leader)
        survivor = cluster.machine(next(iter(cluster.others(leader))))
        print("after a power failure of the leader: ann has", (await survivor.read())["ann"])


if __name__ == "__main__":
    trio.run(main, clock=MockClock(autojump_threshold=0))
