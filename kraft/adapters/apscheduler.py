"""A data store and an event broker of APScheduler 4 on `kraft.Store`: schedules and jobs that several schedulers share.

    with kraft.sync.open_store(config) as store:
        async with AsyncScheduler(KraftDataStore(store), KraftEventBroker(store)) as scheduler:
            ...

Every method of the data store is one transaction that changes what it has read, or nothing, and then is repeated. It
waits as long as there is no quorum. Who has acquired a schedule or a job has it by APScheduler's rule: until a time, by
the clocks of the schedulers, which must agree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from logging import Logger
from typing import Any, Final, TypeVar
from urllib.parse import quote
from uuid import UUID

import attrs
import msgspec
from anyio import to_thread
from apscheduler import (
    ConflictingIdError,
    ConflictPolicy,
    DeserializationError,
    Event,
    Job,
    JobAcquired,
    JobAdded,
    JobOutcome,
    JobReleased,
    JobResult,
    Schedule,
    ScheduleAdded,
    ScheduleRemoved,
    ScheduleResult,
    ScheduleUpdated,
    SerializationError,
    Task,
    TaskAdded,
    TaskLookupError,
    TaskRemoved,
    TaskUpdated,
)
from apscheduler.abc import EventBroker
from apscheduler.datastores.base import BaseExternalDataStore
from apscheduler.eventbrokers.base import BaseExternalEventBroker

from kraft.store.commands import Condition, Delete, Entry, IfVersion, Operation, Put
from kraft.store.errors import Compacted, Conflict
from kraft.store.store import Store
from kraft.sync import Store as SyncStore
from kraft.trio_thread import LoopEnded

T = TypeVar("T")
Document = dict[str, Any]
_ACQUIRED_AT_ONCE: Final = 50
"""Schedules or jobs in one transaction of the store, which has at most 128 operations and conditions."""
_TIME: Final = datetime | None
_SPAN: Final = timedelta | None
_KINDS: Final[Mapping[str, Any]] = {
    "misfire_grace_time": _SPAN,
    "max_jitter": _SPAN,
    "jitter": timedelta,
    "job_result_expiration_time": _SPAN,
    "result_expiration_time": timedelta,
    "next_fire_time": _TIME,
    "last_fire_time": _TIME,
    "scheduled_fire_time": _TIME,
    "start_deadline": _TIME,
    "acquired_until": _TIME,
    "created_at": datetime,
    "started_at": _TIME,
    "finished_at": datetime,
    "expires_at": datetime,
    "trigger": bytes,
    "args": bytes,
    "kwargs": bytes,
    "exception": bytes,
    "return_value": bytes,
    "job_id": UUID,
}
"""The types that JSON lacks, by the names of fields of tasks, schedules, jobs and results."""


def _dumped(document: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({name: one.name if isinstance(one, Enum) else one for name, one in document.items()})


def _loaded(entry: Entry) -> Document:
    document: Document = msgspec.json.decode(entry.value)
    for name in document.keys() & _KINDS.keys():
        document[name] = msgspec.convert(document[name], _KINDS[name])
    return document


class _Changes:
    """The changes of one transaction, made only if nobody else has changed the same meanwhile."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.conditions: list[Condition] = []

    def put(self, key: str, document: Mapping[str, Any], before: Entry | None) -> None:
        """Set a document that was `before`, or was not there."""
        self.operations.append(Put(key, _dumped(document)))
        self.conditions.append(IfVersion(key, 0 if before is None else before.version))

    def delete(self, entry: Entry) -> None:
        """Delete a document."""
        self.operations.append(Delete(entry.key))
        self.conditions.append(IfVersion(entry.key, entry.version))


async def _call(store: SyncStore, function: Callable[[], Awaitable[T]]) -> T:
    """Run a function in the thread of the store, from a task of asyncio or Trio. To cancel the call is to cancel it."""
    future = store.thread.start(function)
    try:
        return await to_thread.run_sync(future.result, abandon_on_cancel=True)
    finally:
        future.cancel()


@attrs.define(eq=False, repr=False)
class KraftDataStore(BaseExternalDataStore):
    """Keeps tasks, schedules and jobs in a store, in keys that begin with `prefix`.

    Args:
        store: The open store.
        prefix: What the keys begin with; schedulers with the same prefix work together.
    """

    store: SyncStore
    prefix: str = attrs.field(kw_only=True, default="apscheduler/")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(prefix={self.prefix!r})"

    async def start(self, exit_stack: AsyncExitStack, event_broker: EventBroker, logger: Logger) -> None:
        """Begin, and erase everything if `start_from_scratch` is set."""
        await super().start(exit_stack, event_broker, logger)
        if self.start_from_scratch:
            await _call(self.store, lambda: self.store.trio.clear(self.prefix))

    # Keys and documents

    def _key(self, kind: str, name: str | UUID) -> str:
        return f"{self.prefix}{kind}/{quote(str(name), safe='')}"

    async def _get(self, kind: str, name: str | UUID) -> Entry | None:
        return await self.store.trio.get(self._key(kind, name))

    async def _all(self, kind: str) -> list[tuple[Entry, Document]]:
        """All documents of a kind, with their entries."""
        return [(entry, _loaded(entry)) async for entry in self.store.trio.entries(f"{self.prefix}{kind}/")]

    async def _change(self, decide: Callable[[Store, _Changes], Awaitable[T]]) -> T:
        """Read, decide and change at once: `decide` runs again if another one has changed what it changes."""

        async def change() -> T:
            store = self.store.trio
            while True:
                changes = _Changes()
                result = await decide(store, changes)
                if not changes.operations:
                    return result
                with suppress(Conflict):
                    await store.transact(*changes.operations, conditions=tuple(changes.conditions))
                    return result

        return await _call(self.store, change)

    async def _publish(self, events: Iterable[Event]) -> None:
        for event in events:
            await self._event_broker.publish(event)

    # Tasks

    async def add_task(self, task: Task) -> None:
        """Add or replace a task; see `apscheduler.abc.DataStore`, also for the other methods."""

        async def add(store: Store, changes: _Changes) -> Event:
            entry = await self._get("tasks", task.id)
            document = task.marshal(self.serializer)
            if entry is not None:
                document["running_jobs"] = _loaded(entry)["running_jobs"]
            changes.put(self._key("tasks", task.id), document, entry)
            return TaskAdded(task_id=task.id) if entry is None else TaskUpdated(task_id=task.id)

        await self._publish([await self._change(add)])

    async def remove_task(self, task_id: str) -> None:
        """Remove a task."""
        if not await _call(self.store, lambda: self.store.trio.delete(self._key("tasks", task_id))):
            raise TaskLookupError(task_id)
        await self._publish([TaskRemoved(task_id=task_id)])

    async def get_task(self, task_id: str) -> Task:
        """One task."""
        entry = await _call(self.store, lambda: self._get("tasks", task_id))
        if entry is None:
            raise TaskLookupError(task_id)
        return Task.unmarshal(self.serializer, _loaded(entry))

    async def get_tasks(self) -> list[Task]:
        """All tasks."""
        rows = await _call(self.store, lambda: self._all("tasks"))
        return sorted(Task.unmarshal(self.serializer, document) for _, document in rows)

    # Schedules

    async def add_schedule(self, schedule: Schedule, conflict_policy: ConflictPolicy) -> None:
        """Add a schedule."""

        async def add(store: Store, changes: _Changes) -> type[ScheduleAdded | ScheduleUpdated] | None:
            entry = await self._get("schedules", schedule.id)
            if entry is not None and conflict_policy is ConflictPolicy.exception:
                raise ConflictingIdError(schedule.id)  # type: ignore[no-untyped-call]  # APScheduler has no types here
            if entry is not None and conflict_policy is ConflictPolicy.do_nothing:
                return None
            changes.put(self._key("schedules", schedule.id), schedule.marshal(self.serializer), entry)
            return ScheduleAdded if entry is None else ScheduleUpdated

        kind = await self._change(add)
        if kind is not None:
            await self._publish(
                [kind(schedule_id=schedule.id, task_id=schedule.task_id, next_fire_time=schedule.next_fire_time)]
            )

    async def remove_schedules(self, ids: Iterable[str]) -> None:
        """Remove schedules."""
        for schedule_id in ids:
            await self._remove_schedule(schedule_id, finished=False)

    async def _remove_schedule(self, schedule_id: str, *, finished: bool) -> None:
        async def remove(store: Store, changes: _Changes) -> list[Event]:
            entry = await self._get("schedules", schedule_id)
            if entry is None or (finished and _loaded(entry)["next_fire_time"] is not None):
                return []
            changes.delete(entry)
            return [ScheduleRemoved(schedule_id=schedule_id, task_id=_loaded(entry)["task_id"], finished=finished)]

        await self._publish(await self._change(remove))

    async def get_schedules(self, ids: set[str] | None = None) -> list[Schedule]:
        """All schedules, or those with these ids."""
        rows = await _call(self.store, lambda: self._all("schedules"))
        return self._schedules(document for _, document in rows if ids is None or document["id"] in ids)

    def _schedules(self, documents: Iterable[Document]) -> list[Schedule]:
        schedules = []
        for document in documents:
            try:
                schedules.append(Schedule.unmarshal(self.serializer, dict(document)))
            except DeserializationError:
                self._logger.warning("Failed to deserialize schedule %r", document["id"])
        return schedules

    async def acquire_schedules(self, scheduler_id: str, lease_duration: timedelta, limit: int) -> list[Schedule]:
        """Acquire schedules that are due, and let this scheduler look for jobs that others hold no more."""
        now = datetime.now(UTC)

        async def acquire(store: Store, changes: _Changes) -> list[Document]:
            due = [
                (entry, document)
                for entry, document in await self._all("schedules")
                if document["next_fire_time"] is not None
                and document["next_fire_time"] <= now
                and not document["paused"]
                and (document.get("acquired_by") in (None, scheduler_id) or document["acquired_until"] < now)
            ]
            due.sort(key=lambda one: one[1]["next_fire_time"])
            acquired = []
            for entry, document in due[: min(limit, _ACQUIRED_AT_ONCE)]:
                document |= {"acquired_by": scheduler_id, "acquired_until": now + lease_duration}
                changes.put(entry.key, document, entry)
                acquired.append(document)
            return acquired

        schedules = self._schedules(await self._change(acquire))
        await self._offer_jobs(scheduler_id, now)
        return schedules

    async def _offer_jobs(self, scheduler_id: str, now: datetime) -> None:
        """Wake who acquires jobs here for each one whose holder has let its lease end: nothing else would."""
        for _, document in await _call(self.store, self._jobs):
            if document.get("acquired_by") not in (None, scheduler_id) and document["acquired_until"] <= now:
                event = JobAdded(
                    job_id=document["id"], task_id=document["task_id"], schedule_id=document["schedule_id"]
                )
                await self._event_broker.publish_local(event)

    async def release_schedules(self, scheduler_id: str, results: Sequence[ScheduleResult]) -> None:
        """Release acquired schedules, with their next times."""
        for result in results:
            try:
                trigger = self.serializer.serialize(result.trigger)
            except SerializationError:
                self._logger.exception(
                    "Error serializing trigger for schedule %r – removing from data store", result.schedule_id
                )
                await self._remove_schedule(result.schedule_id, finished=False)
                continue
            await self._release_schedule(scheduler_id, result, trigger)

    async def _release_schedule(self, scheduler_id: str, result: ScheduleResult, trigger: bytes) -> None:
        async def release(store: Store, changes: _Changes) -> list[Event]:
            entry = await self._get("schedules", result.schedule_id)
            document = {} if entry is None else _loaded(entry)
            # Another scheduler has it if this one was too slow.
            if document.get("acquired_by") != scheduler_id:
                return []
            document |= {
                "trigger": trigger,
                "last_fire_time": result.last_fire_time,
                "next_fire_time": result.next_fire_time,
                "acquired_by": None,
                "acquired_until": None,
            }
            changes.put(self._key("schedules", result.schedule_id), document, entry)
            return [
                ScheduleUpdated(
                    schedule_id=result.schedule_id,
                    task_id=document["task_id"],
                    next_fire_time=result.next_fire_time,
                )
            ]

        await self._publish(await self._change(release))

    async def get_next_schedule_run_time(self) -> datetime | None:
        """The earliest time at which `acquire_schedules` has something to do, as far as is known.

        That is when a schedule is due that is not paused. One that a scheduler has acquired is due when its lease ends,
        at the earliest: that scheduler may have died. The end of the lease of a job counts, too.
        """
        now = datetime.now(UTC)
        schedules = await _call(self.store, lambda: self._all("schedules"))
        times = [
            max(document["next_fire_time"], document.get("acquired_until") or document["next_fire_time"])
            for _, document in schedules
            if document["next_fire_time"] is not None and not document["paused"]
        ]
        jobs = await _call(self.store, lambda: self._all("jobs"))
        leases = [until for _, document in jobs if (until := document.get("acquired_until")) is not None]
        # What has ended before was offered then.
        return min([*times, *(until for until in leases if until > now)], default=None)

    async def extend_acquired_schedule_leases(
        self, scheduler_id: str, schedule_ids: set[str], duration: timedelta
    ) -> None:
        """Keep acquired schedules for longer."""
        await self._extend("schedules", scheduler_id, schedule_ids, duration)

    async def _extend(self, kind: str, scheduler_id: str, ids: Iterable[str | UUID], duration: timedelta) -> None:
        until = datetime.now(UTC) + duration
        for one in ids:

            async def extend(store: Store, changes: _Changes, one: str | UUID = one) -> None:
                entry = await self._get(kind, one)
                document = {} if entry is None else _loaded(entry)
                if document.get("acquired_by") == scheduler_id:
                    changes.put(self._key(kind, one), document | {"acquired_until": until}, entry)

            await self._change(extend)

    # Jobs

    async def add_job(self, job: Job) -> None:
        """Add a job."""
        document = job.marshal(self.serializer)
        await _call(
            self.store, lambda: self.store.trio.put(self._key("jobs", job.id), _dumped(document), if_absent=True)
        )
        await self._publish([JobAdded(job_id=job.id, task_id=job.task_id, schedule_id=job.schedule_id)])

    async def _jobs(self) -> list[tuple[Entry, Document]]:
        """All jobs, in the order in which they were added."""
        jobs = await self._all("jobs")
        for _, document in jobs:
            document["id"] = UUID(document["id"])
        return sorted(jobs, key=lambda one: (one[1]["created_at"], one[0].created))

    async def get_jobs(self, ids: Iterable[UUID] | None = None) -> list[Job]:
        """All jobs, or those with these ids."""
        wanted = None if ids is None else frozenset(ids)
        jobs = []
        for _, document in await _call(self.store, self._jobs):
            if wanted is None or document["id"] in wanted:
                try:
                    jobs.append(Job.unmarshal(self.serializer, document))
                except DeserializationError:
                    self._logger.warning("Failed to deserialize job %r", document["id"])
        return jobs

    async def acquire_jobs(self, scheduler_id: str, lease_duration: timedelta, limit: int | None = None) -> list[Job]:
        """Acquire jobs that nobody runs, as far as their tasks allow for more.

        What this scheduler holds already it runs, even if it was late to extend the lease.
        """
        now = datetime.now(UTC)
        most = _ACQUIRED_AT_ONCE if limit is None else min(limit, _ACQUIRED_AT_ONCE)

        async def acquire(store: Store, changes: _Changes) -> tuple[list[Job], list[tuple[Document, JobResult]]]:
            tasks = {document["id"]: (entry, document) for entry, document in await self._all("tasks")}
            acquired: list[Job] = []
            discarded: list[tuple[Document, JobResult]] = []
            touched: set[str] = set()
            for entry, document in await self._jobs():
                holder = document.get("acquired_by")
                was_acquired = holder is not None
                is_held = was_acquired and (holder == scheduler_id or document["acquired_until"] >= now)
                if len(acquired) == most or is_held:
                    continue
                try:
                    job = Job.unmarshal(self.serializer, dict(document))
                except DeserializationError as failure:
                    outcome = JobOutcome.deserialization_failed
                    discarded.append((document, _result_of(document, outcome, now, failure)))
                    continue
                if job.start_deadline is not None and job.start_deadline < now:
                    discarded.append((document, _result_of(document, JobOutcome.missed_start_deadline, now)))
                    continue
                task = tasks.get(job.task_id, (None, {}))[1]
                running = task.get("running_jobs", 0) - was_acquired
                if task.get("max_running_jobs") is not None and running >= task["max_running_jobs"]:
                    self._logger.debug("Skipping job %s: %d jobs of task %r run", job.id, running, job.task_id)
                    continue
                if task:
                    task["running_jobs"] = running + 1
                    touched.add(job.task_id)
                job.acquired_by, job.acquired_until = scheduler_id, now + lease_duration
                document |= {"acquired_by": scheduler_id, "acquired_until": job.acquired_until}
                changes.put(entry.key, document, entry)
                acquired.append(job)
            for task_id in touched:
                changes.put(self._key("tasks", task_id), tasks[task_id][1], tasks[task_id][0])
            return acquired, discarded

        acquired, discarded = await self._change(acquire)
        await self._publish(JobAcquired.from_job(job, scheduler_id=scheduler_id) for job in acquired)
        for document, result in discarded:
            await self._release(document.get("acquired_by", scheduler_id), document["id"], result)
        return acquired

    async def release_job(self, scheduler_id: str, job: Job, result: JobResult) -> None:
        """End a job, with its result. A job that somebody else has ended meanwhile keeps that result."""
        await self._release(scheduler_id, job.id, result)

    async def _release(
        self, scheduler_id: str, job_id: UUID, result: JobResult, *, expired_at: datetime | None = None
    ) -> None:
        """End a job that this scheduler has acquired, or that nobody has; only if its time is over by `expired_at`."""

        async def release(store: Store, changes: _Changes) -> list[Event]:
            entry = await self._get("jobs", job_id)
            if entry is None:
                return []
            document = _loaded(entry)
            holder = document.get("acquired_by")
            if holder is not None and holder != scheduler_id:
                return []
            if expired_at is not None and document["acquired_until"] >= expired_at:
                return []
            task = await self._get("tasks", document["task_id"])
            if holder is not None and task is not None:
                counted = _loaded(task)
                changes.put(task.key, counted | {"running_jobs": counted["running_jobs"] - 1}, task)
            changes.delete(entry)
            if result.expires_at > result.finished_at:
                key = self._key("results", job_id)
                changes.put(key, result.marshal(self.serializer), await store.get(key))
            return [
                JobReleased.from_result(
                    result, scheduler_id, document["task_id"], document["schedule_id"], document["scheduled_fire_time"]
                )
            ]

        await self._publish(await self._change(release))

    async def get_job_result(self, job_id: UUID) -> JobResult | None:
        """Take the result of a job."""

        async def take(store: Store, changes: _Changes) -> Document | None:
            entry = await self._get("results", job_id)
            if entry is None:
                return None
            changes.delete(entry)
            return _loaded(entry)

        document = await self._change(take)
        return None if document is None else JobResult.unmarshal(self.serializer, document)

    async def extend_acquired_job_leases(self, scheduler_id: str, job_ids: set[UUID], duration: timedelta) -> None:
        """Keep acquired jobs for longer."""
        await self._extend("jobs", scheduler_id, job_ids, duration)

    # Cleaning up

    async def reap_abandoned_jobs(self, scheduler_id: str) -> None:
        """End the jobs that a scheduler has acquired in a former life."""
        now = datetime.now(UTC)
        for _, document in await _call(self.store, self._jobs):
            if document.get("acquired_by") == scheduler_id:
                result = _result_of(document, JobOutcome.abandoned, now)
                await self._release(scheduler_id, document["id"], result)

    async def cleanup(self) -> None:
        """Remove expired results, jobs whose schedulers have died, and schedules that have ended."""
        now = datetime.now(UTC)
        for entry, document in await _call(self.store, lambda: self._all("results")):
            if document["expires_at"] <= now:
                with suppress(Conflict):
                    await _call(self.store, partial(self.store.trio.delete, entry.key, if_version=entry.version))
        for _, document in await _call(self.store, self._jobs):
            if document.get("acquired_by") is not None and document["acquired_until"] < now:
                result = _result_of(document, JobOutcome.abandoned, now)
                await self._release(document["acquired_by"], document["id"], result, expired_at=now)
        with_jobs = {document["schedule_id"] for _, document in await _call(self.store, self._jobs)}
        for _, document in await _call(self.store, lambda: self._all("schedules")):
            if document["next_fire_time"] is None and document["id"] not in with_jobs:
                await self._remove_schedule(document["id"], finished=True)


def _result_of(
    document: Document, outcome: JobOutcome, now: datetime, failure: BaseException | None = None
) -> JobResult:
    """The result of a job that did not run to its end."""
    expires_at = now + document["result_expiration_time"]
    return JobResult(job_id=document["id"], outcome=outcome, finished_at=now, expires_at=expires_at, exception=failure)


@attrs.define(eq=False, repr=False)
class KraftEventBroker(BaseExternalEventBroker):
    """Tells all schedulers of events, each once and in order, by one key of a store that everybody watches.

    Args:
        store: The open store.
        key: The key. Schedulers with the same key hear each other.
    """

    store: SyncStore
    key: str = attrs.field(kw_only=True, default="apscheduler-events")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(key={self.key!r})"

    async def start(self, exit_stack: AsyncExitStack, logger: Logger) -> None:
        """Listen from now on."""
        await super().start(exit_stack, logger)
        exit_stack.callback(self._task_group.cancel_scope.cancel)
        self._task_group.start_soon(self._listen, self.store.revision)

    async def _listen(self, revision: int) -> None:
        watch = self.store.trio.watch(key=self.key, after=revision)
        while True:
            try:
                change = await _call(self.store, watch.__anext__)
            except Compacted as behind:
                self._logger.warning("Events were missed: %s", behind)
                watch = self.store.trio.watch(key=self.key)
                continue
            except (StopAsyncIteration, LoopEnded):
                self._logger.error("The store has ended, and with it the events")
                return
            event = self.reconstitute_event(change.value or b"")
            if event is not None:
                await self.publish_local(event)

    async def publish(self, event: Event) -> None:
        """Tell all schedulers."""
        notification = self.generate_notification(event)
        await _call(self.store, lambda: self.store.trio.put(self.key, notification))
