"""Workers share jobs from a replicated queue, and each job is taken once.

In a checkout:

    $ python3 examples/work_queue.py
    12 jobs, each done once, by 3 workers
"""

import tempfile

import trio
from nightly_lock import one_voter

import kraft

JOBS = [f"job {number}" for number in range(12)]


async def main(folder: str) -> None:
    done: list[str] = []
    async with kraft.open_store(one_voter(folder)) as store:
        queue = kraft.Queue(store, "jobs")

        async def work(nursery: trio.Nursery) -> None:
            while True:
                done.append((await queue.get()).decode())
                if len(done) == len(JOBS):
                    nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(work, nursery)
            for job in JOBS:
                await queue.put(job.encode())
    once = "each done once" if sorted(done) == sorted(JOBS) else "not each done once"
    print(f"{len(done)} jobs, {once}, by 3 workers")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        trio.run(main, home)
