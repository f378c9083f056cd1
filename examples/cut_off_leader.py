"""A leader that is cut off from the majority commits nothing, in virtual time: no second passes.

In a checkout:

    $ python3 examples/cut_off_leader.py
    the old leader does not know whether its record was kept
    the others have a leader, and commit
    in the end all three have the same log
"""

import trio
from trio.testing import MockClock

from kraft import OutcomeUnknown
from kraft.process.hosting import host_raw_log
from kraft.testing import Cluster


async def main() -> None:
    async with Cluster(controllers=3, seed=8, application=host_raw_log) as cluster:
        old = await cluster.leader()
        cluster.network.partition({old}, cluster.others(old))
        try:
            await cluster.node(old).append([b"alone"])
        except OutcomeUnknown:
            print("the old leader does not know whether its record was kept")
        await cluster.leader(among=cluster.others(old))
        offset = await cluster.append([b"together"])
        print("the others have a leader, and commit")
        cluster.network.heal()
        await cluster.wait_for_offset(offset + 1)
        cluster.check()
        print("in the end all three have the same log")


if __name__ == "__main__":
    trio.run(main, clock=MockClock(autojump_threshold=0))
