"""A queue of jobs on running nodes, in virtual time: jobs come again, end in the end, and are not done twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import kraft
from kraft.limits import LEASES, STORE_KEYS
from kraft.store import Append, DeadLetter, Job, Lease
from kraft.store.work_queue import MOST_TAKEN
from kraft.testing import Cluster
from support.documented_programs import HOWTO, program, run_program

TTL = 3.0


@asynccontextmanager
async def stores(controllers: int = 1) -> AsyncIterator[tuple[Cluster, list[kraft.Store]]]:
    """A cluster, and the store of each node."""
    with trio.fail_after(3600):
        async with Cluster(controllers=controllers, seed=57, state_machine=kraft.StoreMachine) as cluster:
            await cluster.leader()
            yield cluster, [kraft.Store(cluster.machine(node_id)) for node_id in cluster.ids]
            cluster.check()


@asynccontextmanager
async def queue_of(attempts: int = 3) -> AsyncIterator[kraft.WorkQueue]:
    """A queue on a cluster of one node, which holds no job and no lease at the end."""
    async with stores() as (_, (store,)):
        yield kraft.WorkQueue(store, "jobs", attempts=attempts, ttl=TTL)
        assert (await store.scan("work/jobs/job/")).entries == ()
        assert (await store.scan("work/jobs/taken/")).entries == ()


async def is_empty(queue: kraft.WorkQueue) -> bool:
    """Whether no job comes within 20 seconds, in which all leases end."""
    with trio.move_on_after(20):
        async with queue.take():
            return False
    return True


async def fail(queue: kraft.WorkQueue, why: str) -> Job:
    """Take a job, and fail."""
    taken: list[Job] = []

    async def work() -> None:
        async with queue.take() as job:
            taken.append(job)
            raise OSError(why)

    with pytest.raises(OSError, match=why):
        await work()
    return taken[0]


async def loses_its_job(work: Callable[[], Awaitable[None]]) -> None:
    """Work, until the lease is lost or the node has stopped."""
    with pytest.raises((kraft.NodeStopped, kraft.LeaseLost)):
        await work()


async def test_jobs_are_taken_in_order_and_done_once(autojump_clock: MockClock) -> None:
    async with queue_of() as queue:
        ids = [await queue.put(b"%d" % number) for number in range(3)]
        seen = []
        for _ in ids:
            async with queue.take() as job:
                seen.append((job.id, job.value, job.attempt, job.is_held))
        assert seen == [(ids[number], b"%d" % number, 1, True) for number in range(3)]
        assert not job.is_held
        assert await is_empty(queue)


async def test_one_worker_at_a_time_has_a_job_and_another_waits_for_the_next(autojump_clock: MockClock) -> None:
    async with queue_of() as queue:
        await queue.put(b"first")
        async with queue.take():
            assert await is_empty(queue)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(queue.put, b"second")
                async with queue.take() as job:
                    assert job.value == b"second"


async def test_what_was_said_last_counts(autojump_clock: MockClock) -> None:
    async with queue_of() as queue:
        await queue.put(b"one")
        async with queue.take() as job:
            job.reject("no")
            job.again()

        async def fail_when_done() -> None:
            async with queue.take() as job:
                assert job.attempt == 2
                job.done()
                raise OSError("after it was done")

        with pytest.raises(OSError, match="after it was done"):
            await fail_when_done()
        assert await is_empty(queue)
        assert await queue.dead() == ()


async def test_a_job_that_fails_comes_again_at_its_place_at_once(autojump_clock: MockClock) -> None:
    async with queue_of() as queue:
        await queue.put(b"one")
        await queue.put(b"two")
        began = trio.current_time()
        failed = await fail(queue, "the knife is lost")
        async with queue.take() as job:
            assert (job.id, job.value, job.attempt) == (failed.id, b"one", 2)
            assert job.token > failed.token
        async with queue.take() as job:
            assert (job.value, job.attempt) == (b"two", 1)
        assert trio.current_time() - began < TTL


async def test_a_worker_that_is_cancelled_gives_its_job_back_at_once(autojump_clock: MockClock) -> None:
    async with queue_of() as queue:
        await queue.put(b"one")
        with trio.move_on_after(1):
            async with queue.take():
                await trio.sleep_forever()
        began = trio.current_time()
        async with queue.take() as job:
            assert job.attempt == 2
        assert trio.current_time() - began < TTL


async def test_what_fails_too_often_becomes_a_dead_letter(autojump_clock: MockClock) -> None:
    async with queue_of(attempts=2) as queue:
        number = await queue.put(b"stone")
        for _ in range(2):
            await fail(queue, "too hard")
        assert await is_empty(queue)
        (letter,) = await queue.dead()
        assert letter == DeadLetter(number, b"stone", 2, "OSError: too hard", letter.version)
        assert await queue.retry(letter) > number
        with pytest.raises(kraft.Conflict):
            await queue.retry(letter)
        assert await queue.dead() == ()
        async with queue.take() as job:
            assert (job.value, job.attempt) == (b"stone", 1)


async def test_a_rejected_job_is_a_dead_letter_at_once_and_may_be_forgotten(autojump_clock: MockClock) -> None:
    async with queue_of() as queue:
        await queue.put(b"stone")
        async with queue.take() as job:
            job.reject("nobody eats that" * 100)
        (letter,) = await queue.dead()
        assert (letter.attempts, letter.why) == (1, ("nobody eats that" * 100)[:200])
        await queue.forget(letter)
        with pytest.raises(kraft.Conflict):
            await queue.forget(letter)
        assert await queue.dead() == ()


async def test_another_worker_has_the_job_of_one_that_died(autojump_clock: MockClock) -> None:
    """The lease ends, the job is handed out a second time, and once it is done nobody gets it."""
    async with stores(3) as (cluster, nodes):
        dying, living = (kraft.WorkQueue(store, "jobs", ttl=TTL) for store in nodes[:2])
        await living.put(b"one")
        taken = trio.Event()

        async def work() -> None:
            async with dying.take() as job:
                assert job.attempt == 1
                taken.set()
                await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(loses_its_job, work)
            await taken.wait()
            began = trio.current_time()
            await cluster.kill(cluster.ids[0])
            async with living.take() as job:
                assert (job.value, job.attempt) == (b"one", 2)
        assert 1 < trio.current_time() - began < 60
        await cluster.restart(cluster.ids[0])
        assert await is_empty(kraft.WorkQueue(kraft.Store(cluster.machine(cluster.ids[0])), "jobs"))
        assert await living.dead() == ()


async def test_a_worker_that_was_paused_cannot_finish_what_another_one_has(autojump_clock: MockClock) -> None:
    """Its thread stands still past the lease, as nothing renews it meanwhile."""
    async with stores(3) as (cluster, nodes):
        paused, other = (kraft.WorkQueue(store, "jobs", ttl=TTL) for store in nodes[:2])
        await other.put(b"one")
        taken, is_over = trio.Event(), trio.Event()

        async def work() -> None:
            async with paused.take() as job:
                cluster.network.partition({cluster.ids[0]}, set(cluster.ids[1:]))
                taken.set()
                with trio.CancelScope(shield=True):
                    await is_over.wait()
                assert not job.is_held
                job.done()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(loses_its_job, work)
            await taken.wait()
            async with other.take() as job:
                assert job.attempt == 2
                cluster.network.heal()
                is_over.set()
                await trio.sleep(20)
                assert job.is_held
                job.again()
        async with other.take() as job:
            assert (job.value, job.attempt) == (b"one", 3)
        assert await is_empty(other)


async def test_what_a_worker_says_does_not_count_once_another_one_has_had_the_job(autojump_clock: MockClock) -> None:
    async with stores() as (_, (store,)):
        queue = kraft.WorkQueue(store, "jobs", ttl=60)
        await queue.put(b"one")

        async def work() -> None:
            async with queue.take() as job:
                (taken,) = (await store.scan("work/jobs/taken/")).entries
                await store.revoke(Lease(taken.lease, 60))
                async with queue.take() as again:
                    assert (again.id, again.attempt) == (job.id, 2)
                    again.again()
                job.done()

        with pytest.raises(kraft.LeaseLost, match="another worker has had job"):
            await work()
        async with queue.take() as job:
            assert job.attempt == 3


async def test_a_job_whose_last_worker_died_becomes_a_dead_letter(autojump_clock: MockClock) -> None:
    async with stores(3) as (cluster, nodes):
        dying, living = (kraft.WorkQueue(store, "jobs", attempts=1, ttl=TTL) for store in nodes[:2])
        await living.put(b"deadly")

        async def work() -> None:
            async with dying.take():
                await cluster.kill(cluster.ids[0])
                await trio.sleep_forever()

        await loses_its_job(work)
        assert await is_empty(living)
        (letter,) = await living.dead()
        assert (letter.value, letter.attempts) == (b"deadly", 1)
        assert letter.why == "the worker of attempt 1 has told nothing"
        await cluster.restart(cluster.ids[0])


async def test_many_workers_do_each_job_once(autojump_clock: MockClock) -> None:
    async with stores(3) as (_, nodes):
        done: list[bytes] = []

        async def work(store: kraft.Store, nursery: trio.Nursery) -> None:
            queue = kraft.WorkQueue(store, "jobs")
            while True:
                async with queue.take() as job:
                    assert job.attempt == 1
                    await trio.sleep(0.01)
                done.append(job.value)
                if len(done) == 20:
                    nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for store in nodes * 2:
                nursery.start_soon(work, store, nursery)
            for number in range(20):
                await kraft.WorkQueue(nodes[0], "jobs").put(b"%d" % number)
        assert sorted(done) == sorted(b"%d" % number for number in range(20))


def test_a_worker_sees_all_jobs_that_others_have() -> None:
    assert MOST_TAKEN >= LEASES


async def test_a_full_queue_can_be_emptied(autojump_clock: MockClock) -> None:
    """A tenth of the store stays free of jobs."""
    async with stores() as (_, (store,)):
        queue = kraft.WorkQueue(store, "jobs", attempts=1)
        await queue.put(b"one")
        for begin in range(0, STORE_KEYS * 9 // 10, 100):
            await store.transact(*(Append(f"others/{begin + number}/", b"") for number in range(100)))
        assert 0.9 < store.fullness < 0.91
        with pytest.raises(kraft.CommandRefused, match="nine tenths of the store are full"):
            await queue.put(b"two")
        async with queue.take() as job:
            job.reject()
        assert len(await queue.dead()) == 1


async def test_a_queue_tries_each_job_at_least_once(autojump_clock: MockClock) -> None:
    async with stores() as (_, (store,)):
        with pytest.raises(ValueError, match="a job is tried at least once, and not 0 times"):
            kraft.WorkQueue(store, "jobs", attempts=0)


def test_the_program_of_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    page = "work-queue-in-a-store.md"
    printed = run_program(str(program(page, "jobs.py", tmp_path)), str(tmp_path / "node"), folder=tmp_path)
    assert f"```\n{printed}```" in (HOWTO / page).read_text()
