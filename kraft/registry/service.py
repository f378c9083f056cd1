"""The registry as it runs: its topic, its requests, its port.

One task reads the topic `_schemas` into a `State`. A change is written to the topic and answered once it was read back,
so that what was answered survives the registry. Changes take turns; one process serves a topic.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import msgspec
import trio

from kraft.client import Client, ClientError, Consumer, ConsumerSettings, Producer
from kraft.client.questions import ClusterView, Questions
from kraft.client.state.errors import refused
from kraft.http_server import HttpAnswer, HttpLimits, HttpRequest, HttpServer
from kraft.registry.checking import Checkers
from kraft.registry.records import NoopKey, Record, encoded
from kraft.registry.requests import (
    MEDIA_TYPES,
    METHODS,
    Answer,
    Asked,
    Program,
    Refused,
    Route,
    Run,
    Write,
    negotiated,
    routed,
)
from kraft.registry.schemas import CannotCheck, InvalidSchema, TooCostly
from kraft.registry.state import State
from transport.addresses import bind, bound_to
from transport.causes import one_cause
from transport.interface import Endpoint, Listener
from transport.protocol.errors import Error
from transport.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from transport.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

LOGGER: Final = logging.getLogger("kraft.registry")
TOPIC: Final = "_schemas"
LIMITS: Final = HttpLimits(methods=METHODS, connections=64, requests_per_second=1000, body_bytes=1 << 20)
WRITE_SECONDS: Final = 30.0
"""How long a change may take; then the client is told that nobody knows whether it was made."""
QUESTION_MS: Final = 30_000
PAUSE_SECONDS: Final = 1.0
"""How long after a failure the topic is read anew."""
MOST_REPLICAS: Final = 3
_TOPIC_RESOURCE: Final = 2
RECORDS_PER_TURN: Final = 500
ROUNDS: Final = 20
"""How often a request starts anew, as others changed what its result depends on."""
T = TypeVar("T")


class Registry:
    """A registry over a topic of a cluster.

    Args:
        client: The client of the cluster.
        topic: The name of the topic.
    """

    def __init__(self, client: Client, topic: str = TOPIC) -> None:
        self._client = client
        self._topic = topic
        self._session: _Session | None = None
        """None while the topic is read, also anew after a failure."""
        self._opened = trio.Event()
        self._changes = trio.Lock()
        self._checkers = Checkers()

    async def run(
        self, host: str, port: int, *, task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; `task_status` gets the address once all that is registered is known.

        After a failure of the cluster the topic is read anew, again and again; requests wait for that.

        Args:
            host: The address to listen at.
            port: The port; 0 for any free one.

        Raises:
            ClientError: At the start the cluster cannot be reached, or the topic is not as it should be.
            OSError: The port is in use.
        """
        listener = Listener("REGISTRY", host, port)
        bound = bind(listener)
        with one_cause():
            async with (
                trio.SocketListener(trio.socket.from_stdlib_socket(bound)) as listening,
                trio.open_nursery() as nursery,
            ):
                await nursery.start(self._checkers.run)
                await nursery.start(self._keep_open)
                await nursery.start(HttpServer(listening, self._answer, LIMITS).run)
                task_status.started(bound_to(listener, bound))

    async def _keep_open(self, task_status: trio.TaskStatus[None]) -> None:
        has_started = False
        while True:
            try:
                cluster_id = await _prepare(Questions(self._client, QUESTION_MS), self._topic)
                with one_cause():
                    async with _open_session(self._client, self._topic) as session:
                        session.state.cluster_id = cluster_id
                        self._session = session
                        self._opened.set()
                        if not has_started:
                            task_status.started()
                            has_started = True
                        await trio.sleep_forever()
            except ClientError as failed:
                if not has_started:
                    raise
                LOGGER.warning("topic %s is read anew: %s", self._topic, failed)
            self._session, self._opened = None, trio.Event()
            await trio.sleep(PAUSE_SECONDS)

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        content_type = MEDIA_TYPES[0]
        try:
            route, path = routed(request.method, request.path)
            content_type = negotiated(request.accept, request.content_type if request.body else "")
            answer = await self._done(route, Asked(path, request.query, request.body))
        except Refused as no:
            answer = no.answer
        except Exception:
            # What a stranger sends ends one request and no more, also where a library fails over it.
            LOGGER.exception("%s %s failed", request.method, request.path)
            answer = Answer(500, {"error_code": 500, "message": "Internal Server Error"})
        body = answer.body if isinstance(answer.body, bytes) else msgspec.json.encode(answer.body)
        return HttpAnswer(answer.status, body, content_type)

    async def _done(self, route: Route, asked: Asked) -> Answer:
        """Answer a request.

        What takes long runs while others write. The handler then starts anew with the results that are there, until it
        needs no more of them for the schemas that are registered by then; so much happens at once.
        """
        known: dict[Run, object] = {}
        for _ in range(ROUNDS):
            with trio.move_on_after(WRITE_SECONDS):
                await self._opened.wait()
            session = self._session
            if session is None:
                raise Refused(500, 50001, f"the topic {self._topic} cannot be read: the cluster does not answer")
            program = route.handler(session.state, asked)
            if route.changes:
                async with self._changes:
                    step = await _advanced(program, session, known)
            else:
                step = await _advanced(program, session, known)
            if isinstance(step, Answer):
                return step
            try:
                known[step] = await self._checkers.result(step)
            except (InvalidSchema, CannotCheck, TooCostly) as failed:
                known[step] = failed
        raise Refused(500, 50002, "others change the same subject all the time; the schema was not registered")


async def _advanced(program: Program, session: _Session, known: dict[Run, object]) -> Answer | Run:
    """Run a handler until it has its answer, or needs a result that is not known yet."""
    step: Answer | Run | Write = _next(partial(next, program))
    while not isinstance(step, Answer):
        if isinstance(step, Write):
            await _written(session, step.records)
            step = _next(partial(program.send, None))
        elif step not in known:
            return step
        elif isinstance(result := known[step], Exception):
            step = _next(partial(program.throw, result))
        else:
            step = _next(partial(program.send, result))
    return step


class _Session:
    """The reading and writing of the topic, until the cluster fails."""

    def __init__(self, producer: Producer) -> None:
        self.state = State()
        self._producer = producer
        self._read = 0
        """The offset up to which the topic was read."""
        self._progress = trio.Event()

    async def follow(self, consumer: Consumer) -> None:
        """Read the topic until cancelled."""
        while True:
            for number, record in enumerate(await consumer.batch(), 1):
                self.state.apply(record.key, record.value)
                self._read = record.offset + 1
                if not number % RECORDS_PER_TURN:
                    await trio.lowlevel.checkpoint()
            self._progress.set()
            self._progress = trio.Event()

    async def write(self, records: Iterable[Record]) -> None:
        """Write records, and wait until they were read back."""
        sent = []
        for number, (key, value) in enumerate(records, 1):
            sent.append(await self._producer.send(value, key=key))
            if not number % RECORDS_PER_TURN:
                await trio.lowlevel.checkpoint()
        last = [await one.wait() for one in sent][-1].offset
        while self._read <= last:
            await self._progress.wait()


@asynccontextmanager
async def _open_session(client: Client, topic: str) -> AsyncIterator[_Session]:
    async with (
        client.producer(topic) as producer,
        client.consumer(topic, ConsumerSettings(follows=True)) as consumer,
        trio.open_nursery() as nursery,
    ):
        session = _Session(producer)
        nursery.start_soon(session.follow, consumer)
        nursery.start_soon(producer.wait_for_failure)
        # As in the common registry: what was read up to a record of one's own is all that there was before.
        await session.write([encoded(NoopKey(), None)])
        yield session
        nursery.cancel_scope.cancel()


async def _written(session: _Session, records: Iterable[Record]) -> None:
    try:
        with trio.fail_after(WRITE_SECONDS):
            await session.write(records)
    except trio.TooSlowError:
        raise Refused(500, 50002, "Write to the Kafka store timed out") from None
    except ClientError as failed:
        raise Refused(500, 50001, f"Error from the backend Kafka store: {failed}") from failed


async def _prepare(questions: Questions, topic: str) -> str:
    """Create the topic, unless it is there; returns the id of the cluster.

    Raises:
        ClientError: The topic would lose what is registered.
    """
    view = await questions.cluster([topic])
    if topic not in view.topics:
        wanted = CreatableTopic(
            name=topic,
            num_partitions=1,
            replication_factor=min(MOST_REPLICAS, len(view.brokers)),
            configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=QUESTION_MS)
        answer = await questions.ask_any(
            request, CreateTopicsResponse, lambda created: Error.of(created.topics[0].error_code)
        )
        error = Error.of(answer.topics[0].error_code)
        if error not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
            raise refused(f"topic {topic}", error, answer.topics[0].error_message)

        async def known() -> ClusterView | None:
            current = await questions.cluster([topic])
            return current if topic in current.topics else None

        view = await questions.in_time(known, f"no broker knows topic {topic}")
    if (count := len(view.topics[topic].partitions)) != 1:
        raise ClientError(f"topic {topic} has {count} partitions, where a registry needs one")
    resource = DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=["cleanup.policy"]
    )
    described = await questions.ask_any(
        DescribeConfigsRequest(resources=[resource]),
        DescribeConfigsResponse,
        lambda answer: Error.of(answer.results[0].error_code),
    )
    policies = [one.value for one in described.results[0].configs if one.name == "cleanup.policy"]
    if policies and policies != ["compact"]:
        raise ClientError(
            f"topic {topic} has cleanup.policy={policies[0]}, so that it would lose schemas in time",
            hint=f"`kraft configs set topic {topic} cleanup.policy=compact` keeps them.",
        )
    return view.id


def _next(advance: Callable[[], T]) -> T | Answer:
    """The next step of a program, or its answer."""
    try:
        return advance()
    except StopIteration as over:
        result = over.value
        assert isinstance(result, Answer), result
        return result
