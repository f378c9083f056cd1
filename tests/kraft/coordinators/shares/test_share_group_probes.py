"""Requests about share groups get the answers of a broker of Kafka 4.4.0, at the times at which Kafka got them.

The texts of errors are free, and so are the order of partitions in an answer and which member gets which partition.
"""

from __future__ import annotations

import gzip
import json
import re
from typing import Any, Final

from kraft.access.authorizer import AuthorizerSettings
from kraft.coordinators.shares.persister import PersistedWrite, ShareKey
from metadata_log.records.metadata import AccessControlEntryRecord
from metadata_log.serde import from_json, to_json
from metadata_log.types import Uuid
from support import DATA
from support.broker.request_brokers import NewTopic, batch, produce
from support.broker.share_groups import ShareBrokers
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.inbound import Principal

COORDINATORS: Final = {"r-g": 102, "r-cg": 101, "r-gnew": 102, "r-gzz": 102, "o-acl": 102}
RP, RP2, OP = map(Uuid.parse, ("MctzYKAJTs2rMmX1LI7ADg", "FgFGDEoKQKSrLs6eGaxPBw", "mGwvZc4xQDCBv6jmm8ZFDw"))
ALICE: Final = Principal("User", "alice")
TEXTS: Final = ("errorMessage",)
LONG_MS: Final = 20_000
"""A probe that waits longer has asked for a partition that does not exist: how long that takes is free."""


def probes(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress((DATA / "share" / "group" / name).read_bytes()).splitlines()]


def message_of(probe: dict[str, Any]) -> Any:
    key = ApiKey[re.sub(r"(?<!^)(?=[A-Z])", "_", probe["api"]).upper()]
    return from_json(ALL_APIS[key].request, probe["version"], probe["request"])


def compared(value: Any) -> Any:
    """An answer with its lists in order, and without texts."""
    if isinstance(value, list):
        kept = [compared(one) for one in value if not (isinstance(one, dict) and "groupId" in one and _is_other(one))]
        return sorted(kept, key=lambda one: json.dumps(one, sort_keys=True))
    if isinstance(value, dict):
        return {key: compared(one) for key, one in value.items() if key not in TEXTS}
    return value


def _is_other(group: dict[str, Any]) -> bool:
    """Whether a group of a list is of another part of the recording."""
    return group["groupId"] not in ("", *COORDINATORS)


def fill(world: ShareBrokers, topic_id: Uuid, broker_id: int, partition: int, count: int) -> None:
    answer = world.ask(broker_id, produce((topic_id, partition), batch(*[b"x"] * count)))
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_each_answer_is_kafkas() -> None:
    """The clients of the recording have consumed eight records of `rp-0` before they ask for offsets."""
    world = ShareBrokers(
        NewTopic("rp", RP, ((101,), (102,), (101,))), NewTopic("rp2", RP2, ((102,),)), coordinators=COORDINATORS
    )
    for number, leader in enumerate((101, 102, 101)):
        fill(world, RP, leader, number, 14)
    fill(world, RP2, 102, 0, 11)
    start_ms, wrong, count = world.now_ms, [], 0
    rows = probes("probes.jsonl.gz")
    for probe in rows:
        if probe["probe"] == "describe-all":
            _consume_eight(world)
        world.wait(int(max(0, start_ms + probe["t_ms"] - world.now_ms)))
        request_id = world.send(probe["broker"], message_of(probe), probe["version"])
        if probe["ms"] > LONG_MS:
            world.wait(60_000)
            start_ms = int(world.now_ms - probe["t_ms"] - probe["ms"])
        world.settle()
        ours, theirs = compared(to_json(world.answers.pop(request_id), probe["version"])), compared(probe["response"])
        count += 1
        if ours != theirs:
            wrong.append((probe["probe"], probe["request"], theirs, ours))
    for one in wrong:
        print(*map(json.dumps, one), sep="\n   ")
    assert not wrong
    assert count == len(rows) > 90


def _consume_eight(world: ShareBrokers) -> None:
    """The leader of a partition has written that its first eight records are consumed."""
    answers: list[Error] = []
    written = PersistedWrite(state_epoch=2, leader_epoch=0, start_offset=8, delivery_complete_count=0, batches=())
    world.brokers.requests[101].persister.write(
        ShareKey("r-g", RP, 0), written, world.now_ms, lambda error, _: answers.append(error)
    )
    world.settle()
    assert answers == [Error.NONE]


def test_rights_are_those_of_kafka() -> None:
    """A client gets one right after the other. The requests of other parts of share groups are left out."""
    world = ShareBrokers(
        NewTopic("op", OP, ((101,), (102,), (101,))),
        coordinators=COORDINATORS,
        authorizer=AuthorizerSettings(super_users=frozenset({"User:ANONYMOUS"})),
    )
    wrong, count, rules = [], 0, 0
    rows = probes("rights.jsonl.gz")
    start_ms = world.now_ms - rows[0]["t_ms"]
    for probe in rows:
        world.wait(int(max(0, start_ms + probe["t_ms"] - world.now_ms)))
        if probe["api"] == "CreateAcls":
            for rule in probe["request"]["creations"]:
                rules += 1
                world.brokers.change(_rule(rules, rule))
            for rights in world.brokers.rights.values():
                rights.use(world.brokers.image)
            continue
        ours = compared(
            to_json(
                world.ask(probe["broker"] - 200, message_of(probe), probe["version"], principal=ALICE), probe["version"]
            )
        )
        theirs = compared(probe["response"])
        count += 1
        if ours != theirs:
            wrong.append((probe["section"], probe["probe"], probe["request"], theirs, ours))
    for one in wrong:
        print(*map(json.dumps, one), sep="\n   ")
    assert not wrong
    assert count > 50


def _rule(number: int, rule: dict[str, Any]) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=Uuid(bytes([7, number] * 8)),
        resource_type=rule["resourceType"],
        resource_name=rule["resourceName"],
        pattern_type=rule["resourcePatternType"],
        principal=rule["principal"],
        host=rule["host"],
        operation=rule["operation"],
        permission_type=rule["permissionType"],
    )
