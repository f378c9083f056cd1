"""The control of a cluster of a test over HTTP: every verb of `Kafka`, and whatever else a stranger may send."""

from __future__ import annotations

import http.client
import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import fields

from kraft.testing import Kafka
from kraft.testing.control import VERBS, DeleteTopic, Jump, open_control
from kraft.trio_thread import TrioThread

HEADERS = {"Content-Type": "application/json"}


class Control:
    """A suite in another language."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])

    def ask(
        self, path: str, body: bytes | None = None, *, method: str = "", headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request(
                method or ("GET" if body is None else "POST"), path, body, HEADERS if headers is None else headers
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        finally:
            connection.close()

    def do(self, verb: str, **arguments: Any) -> Any:
        status, told = self.ask(f"/{verb}", json.dumps(arguments).encode())
        assert status == 200, told
        return told["result"]


@contextmanager
def controlled(kafka: Kafka) -> Iterator[Control]:
    thread = TrioThread(open_control(kafka, 0), "a control")
    try:
        yield Control(thread.value)
    finally:
        thread.stop()


@pytest.fixture(scope="module")
def alone() -> Iterator[tuple[Kafka, Control]]:
    with Kafka() as kafka, controlled(kafka) as control:
        yield kafka, control


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_the_arguments_of_its_method(name: str) -> None:
    verb = VERBS[name]
    if verb in (DeleteTopic, Jump):
        assert verb.__struct_fields__ == (("names",) if verb is DeleteTopic else ("seconds",))
        return
    wanted = dict(inspect.signature(getattr(Kafka, name)).parameters)
    del wanted["self"]
    assert verb.__struct_fields__ == tuple(wanted)
    defaults = [one.default for one in wanted.values() if one.default is not inspect.Parameter.empty]
    assert [one.default for one in fields(verb) if not one.required] == defaults


def test_every_fault_of_the_fixture_is_a_verb() -> None:
    noted = {
        name for name, method in vars(Kafka).items() if not name.startswith("_") and hasattr(method, "__wrapped__")
    }
    assert {name for name in noted if not name.startswith("assert_")} <= VERBS.keys()


def test_nodes_leaders_and_groups_are_moved() -> None:
    with Kafka(brokers=2, controllers=1) as kafka, controlled(kafka) as control:
        control.do("create_topic", name="orders", config={"min.insync.replicas": 1})
        leader = control.do("leader", topic="orders")
        other = control.do("move_leader", topic="orders")
        assert {leader, other} == {101, 102}
        assert kafka.leader("orders") == other
        assert sorted(control.do("isr", topic="orders")) == [101, 102]
        control.do("kill", node_id=other)
        kafka.wait_until(lambda kafka: kafka.leader("orders") == leader)
        assert sorted(control.ask("/")[1]["running"]) == [1, leader]
        control.do("restart", node_id=other)
        assert sorted(control.ask("/")[1]["running"]) == [1, 101, 102]
        control.do("delete_topic", names=["orders"])
        assert "orders" not in kafka.image.topics
        assert control.do("coordinator", group="g") == -1


def test_faults_happen_and_end(alone: tuple[Kafka, Control]) -> None:
    kafka, control = alone
    kafka.reset()
    kafka.create_topic("orders")
    (node,) = kafka.broker_ids
    control.do("delay", node_id=node, milliseconds=[1, 2])
    control.do("fail_next", api="Produce", error="INVALID_RECORD")
    with pytest.raises(Exception, match="INVALID_RECORD"):
        kafka.produce("orders", ["refused"])
    control.do("heal")
    assert [one.offset for one in kafka.produce("orders", ["taken"])] == [0]
    control.do("jump", seconds=1.5)
    control.do("reset")
    assert "orders" not in kafka.image.topics


DEEP = b"[" * 60_000
REFUSED = {
    "no such verb": ("/close", b"{}", {}, 404),
    "a hidden method": ("/_call", b"{}", {}, 404),
    "a path with escapes": ("/%6bill", b"{}", {}, 404),
    "a verb by GET": ("/heal", None, {}, 405),
    "a POST to the state": ("/", b"{}", {}, 405),
    "a form of a page": ("/heal", b"x=1", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
    "plain text of a page": ("/heal", b"{}", {"Content-Type": "text/plain"}, 415),
    "no type": ("/heal", b"{}", {"Content-Type": ""}, 415),
    "a name that leads to loopback": ("/", None, {"Host": "evil.example:80"}, 403),
    "a name like ours": ("/", None, {"Host": "127.0.0.1.evil.example"}, 403),
    "no JSON": ("/kill", b"{", {}, 400),
    "no text": ("/kill", b"\xff\xfe", {}, 400),
    "no object": ("/kill", b"[1]", {}, 400),
    "very deep": ("/kill", DEEP, {}, 400),
    "very deep in an argument": ("/create_topic", b'{"name":"a","config":' + b'{"a":' * 10_000, {}, 400),
    "a missing argument": ("/kill", b"{}", {}, 400),
    "an unknown argument": ("/heal", b'{"self": 1}', {}, 400),
    "a wrong kind": ("/kill", b'{"node_id": "1"}', {}, 400),
    "a huge number": ("/slow_disk", b'{"node_id": 1, "milliseconds": 1' + b"0" * 400 + b"}", {}, 400),
    "a time without end": ("/jump", b'{"seconds": 1e300}', {}, 400),
    "below zero": ("/throttle", b'{"milliseconds": -1}', {}, 400),
    "a long name": ("/create_topic", b'{"name": "' + b"a" * 250 + b'"}', {}, 400),
    "too many partitions": ("/create_topic", b'{"name": "a", "partitions": 1000000}', {}, 400),
    "an unknown node": ("/slow_disk", b'{"node_id": 77, "milliseconds": 1}', {}, 400),
    "a node that is not there": ("/pause", b'{"node_id": 77}', {}, 409),
    "an unknown error": ("/fail_next", b'{"api": "Produce", "error": "NO"}', {}, 400),
    "an unknown topic": ("/leader", b'{"topic": "none"}', {}, 400),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_request_of_a_stranger_is_refused_and_changes_nothing(what: str, alone: tuple[Kafka, Control]) -> None:
    kafka, control = alone
    path, body, headers, wanted = REFUSED[what]
    before = control.ask("/")
    status, told = control.ask(path, body, headers={**HEADERS, **headers})
    assert status == wanted, told
    assert isinstance(told["error"], str)
    assert len(told["error"]) < 2_000
    assert control.ask("/") == before
    assert kafka.running


@pytest.mark.parametrize(
    ("path", "body", "headers", "told"),
    [
        ("/move_leadr", b"{}", HEADERS, "there is no verb 'move_leadr'; did you mean move_leader?"),
        ("/heal", b"{}", {}, "with Content-Type: application/json, as curl --json '{...}' sends it"),
        ("/kill", b'{"id": 1}', HEADERS, "it takes node_id, loses_power"),
        ("/heal", b'{"id": 1}', HEADERS, "it takes no arguments"),
        ("/delete_topic", b'{"names": ["a"]}', HEADERS, "a: UNKNOWN_TOPIC_OR_PARTITION: This server does not host"),
        ("/pause", b'{"node_id": 77}', HEADERS, "there is no node 77; there are 1"),
    ],
)
def test_a_refusal_says_what_to_send_instead(
    path: str, body: bytes, headers: dict[str, str], told: str, alone: tuple[Kafka, Control]
) -> None:
    _, answer = alone[1].ask(path, body, headers=headers)
    assert told in answer["error"]
    assert not answer["error"].startswith(("SomeRefused", "NodeDown"))


def test_a_slash_at_the_end_is_no_other_verb(alone: tuple[Kafka, Control]) -> None:
    assert alone[1].ask("/heal/", b"{}") == (200, {"result": None})


@pytest.mark.parametrize("method", ["PUT", "OPTIONS", "DELETE", "TRACE"])
def test_a_page_of_another_origin_gets_no_leave(method: str, alone: tuple[Kafka, Control]) -> None:
    """Before it sends JSON a browser asks with OPTIONS."""
    connection = http.client.HTTPConnection("127.0.0.1", alone[1]._port, timeout=60)
    connection.request(method, "/heal", headers={"Origin": "http://evil.example"})
    answer = connection.getresponse()
    assert answer.status == 405
    assert answer.getheader("Access-Control-Allow-Origin") is None
    connection.close()


def test_a_body_that_is_too_long_is_refused(alone: tuple[Kafka, Control]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", alone[1]._port, timeout=60)
    connection.request("POST", "/heal", b" " * 70_000, HEADERS)
    assert connection.getresponse().status == 413
    connection.close()


def test_it_listens_on_loopback_alone(alone: tuple[Kafka, Control]) -> None:
    kafka, _ = alone
    thread = TrioThread(open_control(kafka, 0), "another control")
    assert thread.value.startswith("http://127.0.0.1:")
    thread.stop()
