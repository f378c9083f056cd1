"""Workers share jobs from a replicated queue, and a job whose worker fails comes again.

In a checkout:

    $ python3 examples/work_queue.py
    12 jobs done by 3 workers, 4 of them at the second attempt; dead letters: none
"""

import tempfile

import trio
from nightly_lock import one_voter

import kraft

JOBS = [f"job {number}" for number in range(12)]


async def main(folder: str) -> None:
    done: dict[str, int] = {}
    async with kraft.open_store(one_voter(folder)) as store:
        queue = kraft.WorkQueue(store, "jobs", attempts=2)

        async def work(nursery: trio.Nursery) -> None:
            while True:
                async with queue.take() as job:
                    name = job.value.decode()
                    fails = job.attempt == 1 and JOBS.index(name) % 3 == 0
                    if fails:
                        job.again("the first attempt fails")
                if not fails:
                    done[name] = job.attempt
                if len(done) == len(JOBS):
                    nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(work, nursery)
            for job in JOBS:
                await queue.put(job.encode())
        dead = [letter.value.decode() for letter in await queue.dead()]
    again = sum(attempt == 2 for attempt in done.values())
    print(
        f"{len(done)} jobs done by 3 workers, {again} of them at the second attempt; "
        f"dead letters: {', '.join(dead) or 'none'}"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        trio.run(main, home)
