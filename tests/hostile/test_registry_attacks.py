"""Small on the wire, large inside or in work: what requests of strangers cost a schema registry that is full.

Every route, query and body of `registry_attacks` is asked of registries that are as full as they may be. No turn takes
more than `TURN_MS` of CPU time; what takes longer is a question for a process that can be ended, and such a question
has bounds as well.
"""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice

import msgspec
import pytest
import trio

from kraft.limits import TURN_MS
from kraft.registry import requests, schemas
from kraft.registry.checking import Checkers
from kraft.registry.records import DeleteSubjectKey, DeleteSubjectValue, encoded
from kraft.registry.requests import Answer, Asked, Refused, Run, routed
from kraft.registry.schemas import CannotCheck, Earlier, InvalidSchema, Source, TooCostly
from kraft.registry.service import LIMITS, RECORDS_PER_TURN
from kraft.registry.state import State
from registry_attacks import FULL, Request, hard_schemas, many_subjects, many_versions, requests_for

QUESTION_BYTES = 6 << 20
"""As many as `MAX_QUESTION` characters and a body of the longest kind take."""
ANSWER_BYTES = 24 << 20


class Turns:
    """The longest turn of requests, in milliseconds of CPU time."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.answer = 0
        self.question = 0
        self._since = time.thread_time()

    def start(self) -> None:
        self._since = time.thread_time()

    def end(self) -> None:
        now = time.thread_time()
        self.longest, self._since = max(self.longest, (now - self._since) * 1000), now

    def ask(self, state: State, request: Request) -> None:
        """Ask as the service does, but for the answers of the processes."""
        assert len(request.body or b"") <= LIMITS.body_bytes, request[:2]
        self.start()
        try:
            route, names = routed(request.method, request.path)
            answer = self.run(route.handler(state, Asked(names, request.query, request.body)))
        except Refused as no:
            answer = no.answer
        body = answer.body if isinstance(answer.body, bytes) else msgspec.json.encode(answer.body)
        self.end()
        assert answer.status < 500
        self.answer = max(self.answer, len(body))

    def run(self, program: requests.Program) -> Answer:
        result: object = None
        while True:
            try:
                step = program.send(result)
            except StopIteration as over:
                answer: Answer = over.value
                return answer
            result = None
            if isinstance(step, Run):
                question = pickle.dumps((step.function, step.arguments), protocol=pickle.HIGHEST_PROTOCOL)
                hash(step)
                self.question = max(self.question, len(question))
                match step.function:
                    case schemas.canonical:
                        result = step.arguments[0].text
                    case schemas.incompatibilities:
                        result = []
            else:
                records = iter(step.records)
                while list(islice(records, RECORDS_PER_TURN)):
                    self.end()
            self.end()


@contextmanager
def without_collections() -> Iterator[None]:
    """`kraft.node.gc_freeze` keeps full ones away in a process that serves."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("fill", FULL, ids=lambda one: one.__name__)
def test_no_request_has_a_long_turn(fill: Callable[[], State]) -> None:
    with without_collections():
        state = fill()
        for request in requests_for(state):
            turns = Turns()
            turns.ask(state, request)
            assert turns.longest < TURN_MS, request[:3]
            assert turns.question < QUESTION_BYTES, request[:3]
            assert turns.answer < ANSWER_BYTES, request[:3]


@pytest.mark.parametrize("fill", [many_subjects, many_versions], ids=lambda one: one.__name__)
def test_no_record_has_a_long_turn(fill: Callable[[], State]) -> None:
    with without_collections():
        state = fill()
        subject = next(iter(state.subjects))
        key, value = encoded(DeleteSubjectKey(subject), DeleteSubjectValue(subject, 1 << 30))
        turns = Turns()
        turns.start()
        state.apply(key, value)
        turns.end()
        assert turns.longest < TURN_MS


def test_what_strangers_have_kept_is_counted_and_bounded() -> None:
    state = State()
    kept = [
        f'{{"keytype":"{kind}","subject":"{at}","magic":0}}'.encode() for kind in ("CONFIG", "MODE") for at in range(9)
    ]
    kept.append(b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}')
    value = {"compatibilityLevel": "FULL", "mode": "IMPORT", "subject": "s", "version": 1, "id": 1, "schema": "1"}
    for key in kept:
        before = state.memory
        state.apply(key, msgspec.json.encode({**value, "deleted": False}))
        assert state.memory > before
    for key in kept:
        state.apply(key, None)
    assert state.memory == 0
    state.memory = requests.MAX_MEMORY
    for method, where, body in (
        ("PUT", "/config/s", b'{"compatibility": "NONE"}'),
        ("PUT", "/mode/s", b'{"mode": "READONLY"}'),
        ("POST", "/subjects/s/versions", b'{"schema": "1"}'),
    ):
        route, names = routed(method, where)
        with pytest.raises(Refused) as refused:
            Turns().run(route.handler(state, Asked(names, {}, body)))
        assert refused.value.code == 42209


def test_hard_schemas_have_an_answer() -> None:
    """None is a fault of the registry: each is read, compared, or refused by name."""

    async def main() -> None:
        checkers = Checkers()
        async with trio.open_nursery() as nursery:
            await nursery.start(checkers.run)
            for _, source in hard_schemas(1500):
                earlier = (Earlier(1, Source(source.type, f"{source.text} ", source.imports)),)
                for run in (
                    Run(schemas.canonical, (source, False)),
                    Run(schemas.canonical, (source, True)),
                    Run(schemas.incompatibilities, (source, earlier, "FULL")),
                ):
                    with suppress(InvalidSchema, CannotCheck, TooCostly):
                        await checkers.result(run)
            nursery.cancel_scope.cancel()

    trio.run(main)
