"""A schema registry on a state in memory."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from kraft.registry import requests
from kraft.registry.records import Record
from kraft.registry.requests import Answer, Asked, Refused, Run, Write, routed
from kraft.registry.schemas import CannotCheck, InvalidSchema, TooCostly
from kraft.registry.state import State


class Core:
    """A registry whose topic is a list."""

    def __init__(self) -> None:
        self.state = State()
        self.log: list[Record] = []

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            route, names = routed(method, path)
            answer = self._run(route.handler(self.state, Asked(names, query, data)))
        except Refused as no:
            answer = no.answer
        if isinstance(answer.body, bytes):
            return answer.status, answer.body.decode()
        return answer.status, json.loads(msgspec.json.encode(answer.body))

    def _run(self, program: requests.Program) -> Answer:
        result: object = None
        try:
            while True:
                step = program.send(result)
                while isinstance(step, Run):
                    try:
                        result = step.function(*step.arguments)
                        step = program.send(result)
                    except (InvalidSchema, CannotCheck, TooCostly) as bad:
                        step = program.throw(bad)
                assert isinstance(step, Write)
                for record in step.records:
                    self.write(record)
                result = None
        except StopIteration as over:
            answer: Answer = over.value
            return answer

    def write(self, record: Record) -> None:
        self.log.append(record)
        self.state.apply(*record)

    def register(self, subject: str, schema: str, **more: Any) -> tuple[int, Any]:
        return self.ask("POST", f"/subjects/{subject}/versions", {"schema": schema, **more})

    def id_of(self, subject: str, schema: str, **more: Any) -> int:
        status, answer = self.register(subject, schema, **more)
        assert status == 200, answer
        return int(answer["id"])
