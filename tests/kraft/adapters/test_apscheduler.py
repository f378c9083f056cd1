"""The data store and the event broker of APScheduler: its own tests, and several schedulers at once."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from apscheduler import (
    AsyncScheduler,
    ConflictPolicy,
    Event,
    Job,
    JobAcquired,
    JobAdded,
    JobOutcome,
    JobReleased,
    JobResult,
    Schedule,
    ScheduleResult,
    Task,
)
from apscheduler.triggers.date import DateTrigger

import kraft.sync
from kraft.adapters.apscheduler import KraftDataStore, KraftEventBroker
from kraft.adapters.reach import store_at
from sdists import fetch_sdist
from store_quorums import client_url, prepare
from support.documented_programs import program, run_program

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
LEASE = timedelta(seconds=30)
HOUR = timedelta(hours=1)
LOG = logging.getLogger("apscheduler")


@asynccontextmanager
async def scheduler_parts(
    store: kraft.sync.Store, name: str
) -> AsyncIterator[tuple[KraftDataStore, asyncio.Queue[Event]]]:
    """A data store as a scheduler has one, and the events that it hears."""
    heard: asyncio.Queue[Event] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        broker = KraftEventBroker(store, key=f"{name}-events")
        await broker.start(stack, LOG)
        broker.subscribe(heard.put_nowait)
        data = KraftDataStore(store, prefix=f"{name}/")
        await data.start(stack, broker, LOG)
        yield data, heard


def job_of(task: str = "task", keep: timedelta = HOUR) -> Job:
    return Job(task_id=task, executor="async", result_expiration_time=keep)


def test_schedulers_that_ask_at_once_share_jobs_and_slots(store: kraft.sync.Store) -> None:
    async def main() -> None:
        async with scheduler_parts(store, "share") as (one, _), scheduler_parts(store, "share") as (other, _):
            await one.add_task(Task(id="task", func="builtins:print", job_executor="async", max_running_jobs=5))
            for _ in range(8):
                await one.add_job(job_of())
            both = await asyncio.gather(one.acquire_jobs("one", LEASE, 4), other.acquire_jobs("other", LEASE, 4))
            ids = [job.id for jobs in both for job in jobs]
            assert len(ids) == len(set(ids)) == 5
            assert (await one.get_task("task")).running_jobs == 5
            assert not await one.acquire_jobs("one", LEASE)
            for holder, data, jobs in (("one", one, both[0]), ("other", other, both[1])):
                for job in jobs:
                    await data.release_job(holder, job, JobResult.from_job(job, JobOutcome.success, return_value=7))
            assert (await one.get_task("task")).running_jobs == 0
            result = await one.get_job_result(ids[0])
            assert result is not None
            assert result.return_value == 7

    asyncio.run(main())


def test_a_job_that_was_taken_over_is_not_ended_by_its_former_holder(store: kraft.sync.Store) -> None:
    async def main() -> None:
        async with scheduler_parts(store, "over") as (data, _):
            await data.add_task(Task(id="task", func="builtins:print", job_executor="async"))
            await data.add_job(job_of())
            (slow,) = await data.acquire_jobs("slow", timedelta(seconds=-1))
            (fast,) = await data.acquire_jobs("fast", LEASE)
            assert fast.id == slow.id
            assert (await data.get_task("task")).running_jobs == 1
            await data.release_job("slow", slow, JobResult.from_job(slow, JobOutcome.error, exception=ValueError()))
            assert [job.acquired_by for job in await data.get_jobs()] == ["fast"]
            await data.cleanup()
            assert len(await data.get_jobs()) == 1
            await data.reap_abandoned_jobs("fast")
            result = await data.get_job_result(fast.id)
            assert result is not None
            assert result.outcome is JobOutcome.abandoned
            assert (await data.get_task("task")).running_jobs == 0

    asyncio.run(main())


def test_schedules_keep_their_times_and_are_acquired_once(store: kraft.sync.Store) -> None:
    async def main() -> None:
        async with scheduler_parts(store, "schedules") as (one, _), scheduler_parts(store, "schedules") as (other, _):
            due = datetime(2024, 5, 1, 12, tzinfo=UTC)
            for number in range(60):
                schedule = Schedule(
                    id=f"s/{number}",
                    task_id="task",
                    trigger=DateTrigger(due),
                    job_executor="async",
                    kwargs={"number": number},  # type: ignore[arg-type]  # the converter of the field is `dict`
                )
                schedule.next_fire_time = due + timedelta(seconds=number)
                await one.add_schedule(schedule, ConflictPolicy.exception)
            first = await one.acquire_schedules("one", LEASE, 100)
            rest = await other.acquire_schedules("other", LEASE, 100)
            assert [schedule.kwargs["number"] for schedule in first + rest] == list(range(60))
            done = first[0]
            later = due + timedelta(days=1)
            await other.release_schedules(
                "other",
                [
                    ScheduleResult(
                        schedule_id=done.id,
                        task_id="task",
                        trigger=done.trigger,
                        last_fire_time=due,
                        next_fire_time=None,
                    )
                ],
            )
            await one.release_schedules(
                "one",
                [
                    ScheduleResult(
                        schedule_id=done.id,
                        task_id="task",
                        trigger=done.trigger,
                        last_fire_time=due,
                        next_fire_time=later,
                    )
                ],
            )
            (again,) = await other.get_schedules({done.id})
            assert (again.last_fire_time, again.next_fire_time, again.acquired_by) == (due, later, None)
            assert await other.get_next_schedule_run_time() == later

    asyncio.run(main())


def test_events_reach_the_schedulers_of_other_nodes(files: list[Path], store: kraft.sync.Store) -> None:
    async def main() -> None:
        with store_at(client_url(files)) as client:
            async with scheduler_parts(store, "told") as (one, heard), scheduler_parts(client, "told") as (other, far):
                schedule = Schedule(
                    id="s", task_id="task", trigger=DateTrigger(datetime.now(UTC)), job_executor="async"
                )
                await one.add_schedule(schedule, ConflictPolicy.exception)
                await other.add_job(job := job_of(keep=timedelta(0)))
                await other.release_job("other", job, JobResult.from_job(job, JobOutcome.success))
                for told in (heard, far):
                    events = [await told.get() for _ in range(3)]
                    assert [type(event).__name__ for event in events] == ["ScheduleAdded", "JobAdded", "JobReleased"]

    asyncio.run(main())


def tick(path: str) -> None:
    with Path(path).open("a") as out:
        out.write("tick\n")


@pytest.mark.soak
def test_the_program_of_the_page(tmp_path: Path) -> None:
    files = prepare(tmp_path, 1)
    program("adapters.md", "with_apscheduler.py", tmp_path)
    assert run_program("with_apscheduler.py", str(files[0]), folder=tmp_path).startswith("It is ")


@pytest.mark.soak
def test_two_schedulers_run_each_job_once(files: list[Path], store: kraft.sync.Store, tmp_path: Path) -> None:
    path = str(tmp_path / "ticks")

    async def main() -> None:
        with store_at(client_url(files)) as client:
            parts = [
                (KraftDataStore(each, prefix="run/"), KraftEventBroker(each, key="run")) for each in (store, client)
            ]
            released: asyncio.Queue[Event] = asyncio.Queue()
            async with AsyncScheduler(*parts[0]) as one, AsyncScheduler(*parts[1]) as other:
                one.subscribe(released.put_nowait, {JobReleased})
                await one.start_in_background()
                await other.start_in_background()
                jobs = [await (one, other)[number % 2].add_job(tick, args=[path]) for number in range(20)]
                assert len(set(jobs)) == 20
                for _ in jobs:
                    await released.get()
                assert not await one.get_jobs()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert Path(path).read_text() == "tick\n" * 20


@pytest.mark.soak
def test_the_tests_of_apscheduler(files: list[Path], store: kraft.sync.Store, tmp_path: Path) -> None:
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    theirs = fetch_sdist("apscheduler", fetched) / "tests"
    run = tmp_path / "run"
    (run / "kraft_store").mkdir(parents=True)
    shutil.copy(theirs / "conftest.py", run)
    for name in ("test_datastores.py", "test_eventbrokers.py"):
        shutil.copy(theirs / name, run / "kraft_store")
    (run / "kraft_store" / "conftest.py").write_text(
        "import pytest\n"
        "from kraft.adapters.apscheduler import KraftDataStore, KraftEventBroker\n"
        "from kraft.adapters.reach import store_at\n"
        "@pytest.fixture(scope='session')\n"
        "def store():\n"
        f"    with store_at({client_url(files)!r}) as store:\n"
        "        yield store\n"
        "@pytest.fixture\n"
        "def raw_datastore(store):\n"
        "    return KraftDataStore(store, start_from_scratch=True)\n"
        "@pytest.fixture\n"
        "def raw_event_broker(store, serializer):\n"
        "    return KraftEventBroker(store, serializer=serializer)\n"
    )
    (run / "pytest.ini").write_text("[pytest]\nmarkers = external_service\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:trio", "-p", "no:xdist", "kraft_store"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=run, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    skipped = set(re.findall(r"::(\w+) SKIPPED", done.stdout))
    assert skipped <= {
        "test_psycopg",
        "test_asyncpg_broker_from_async_engine",
        "test_psycopg_broker_from_async_engine",
    }
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 47


def test_what_a_dead_scheduler_holds_is_due_when_its_lease_ends(store: kraft.sync.Store) -> None:
    async def main() -> None:
        async with scheduler_parts(store, "dead") as (data, _):
            now = datetime.now(UTC)
            for name, late in (("held", timedelta(0)), ("later", timedelta(days=1))):
                schedule = Schedule(id=name, task_id="task", trigger=DateTrigger(now), job_executor="async")
                schedule.next_fire_time = now + late
                await data.add_schedule(schedule, ConflictPolicy.exception)
            assert [one.id for one in await data.acquire_schedules("dead", LEASE, 10)] == ["held"]
            (held,) = await data.get_schedules({"held"})
            assert await data.get_next_schedule_run_time() == held.acquired_until
            assert not await data.acquire_schedules("next", LEASE, 10)
            await data.extend_acquired_schedule_leases("dead", {"held"}, timedelta(seconds=-1))
            assert [one.id for one in await data.acquire_schedules("next", LEASE, 10)] == ["held"]

    asyncio.run(main())


async def added_until_acquired(heard: asyncio.Queue[Event], scheduler_id: str) -> list[UUID]:
    """The jobs that were offered before this scheduler has acquired one."""
    jobs: list[UUID] = []
    while not isinstance(event := await heard.get(), JobAcquired) or event.scheduler_id != scheduler_id:
        jobs += [event.job_id] if isinstance(event, JobAdded) else []
    return jobs


def test_a_job_of_a_dead_scheduler_is_offered_once_when_its_lease_ends(store: kraft.sync.Store) -> None:
    async def main() -> None:
        async with scheduler_parts(store, "offer") as (data, heard):
            await data.add_task(Task(id="task", func="builtins:print", job_executor="async", max_running_jobs=1))
            await data.add_job(job_of())
            (job,) = await data.acquire_jobs("dead", LEASE)
            assert await added_until_acquired(heard, "dead") == [job.id]
            assert await data.get_next_schedule_run_time() == job.acquired_until
            await data.acquire_schedules("next", LEASE, 10)
            await data.extend_acquired_job_leases("dead", {job.id}, timedelta(seconds=-1))
            assert await data.get_next_schedule_run_time() is None
            await data.acquire_schedules("dead", LEASE, 10)
            assert heard.empty(), "held, or held by the one that asks"
            await data.acquire_schedules("next", LEASE, 10)
            assert not await data.acquire_jobs("dead", LEASE), "it runs there already"
            assert [one.id for one in await data.acquire_jobs("next", LEASE)] == [job.id]
            assert await added_until_acquired(heard, "next") == [job.id]
            assert (await data.get_task("task")).running_jobs == 1

    asyncio.run(main())


RUNS: asyncio.Queue[datetime] = asyncio.Queue()
"""The times at which jobs began."""


async def note_run() -> None:
    RUNS.put_nowait(datetime.now(UTC))


def test_the_next_scheduler_runs_what_a_killed_one_held(store: kraft.sync.Store) -> None:
    """A schedule and a job, at the end of their leases, although nothing else happens until tomorrow."""

    async def main() -> None:
        lease = timedelta(seconds=0.6)
        async with scheduler_parts(store, "killed") as (data, _):
            trigger = DateTrigger(datetime.now(UTC))
            task = "test_apscheduler:note_run"
            await data.add_task(Task(id=task, func=task, job_executor="async"))
            schedule = Schedule(id="held", task_id=task, trigger=trigger, job_executor="async")
            schedule.next_fire_time = trigger.next()
            await data.add_schedule(schedule, ConflictPolicy.exception)
            await data.add_job(job_of(task))
            assert len(await data.acquire_schedules("killed", lease, 10)) == 1
            assert len(await data.acquire_jobs("killed", lease)) == 1
            (held,) = await data.get_schedules()
            assert held.acquired_until is not None
        parts = KraftDataStore(store, prefix="killed/"), KraftEventBroker(store, key="killed-events")
        async with AsyncScheduler(*parts) as scheduler:
            scheduler._task_callables[task] = note_run
            await scheduler.start_in_background()
            for _ in range(2):
                assert await RUNS.get() > held.acquired_until

    asyncio.run(asyncio.wait_for(main(), 20))
