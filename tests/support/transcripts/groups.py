"""The language of `tests/transcripts/groups`: one broker that coordinates all groups, in virtual time.

Clients have names, `a` below, and keep the member id and the generation that they were told. A setting in brackets may
be left out; `generation=` and `id=` are those of the client unless given.

    > groups [NAME=VALUE …]        a new broker at 0 ms, with settings of the coordinator; `orders` has 2 partitions
    > join a [group=g instance= protocols=range,sticky rebalance=9000 session=10000 version=9 id=]
    > sync a [generation= version=5 CLIENT=ASSIGNMENT …]
    > heartbeat a [generation= id= instance=] / leave a [instance=]
    > commit a|- OFFSET [generation=] / fetch g [stable] / describe g / delete g / list / delete-offset g
    > beat a EPOCH [instance= topics=orders owned=0,1]      ConsumerGroupHeartbeat; EPOCH `last` is the one that it has
    > at MS                        time passes; what happens before MS is below its time

`MS a => …` is an answer to a client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from kraft.partitions.replicas.key import PartitionKey
from kraft.wire import Answer, Outcome
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.serde import Message
from support.broker.group_clients import LATEST, ORDERS, SESSION_MS, GroupBrokers, committing, joining
from support.transcripts.driver import parted
from transport.protocol.errors import Error
from transport.protocol.messages import consumer_group_heartbeat as beats
from transport.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from transport.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from transport.protocol.messages.heartbeat import HeartbeatRequest
from transport.protocol.messages.join_group import JoinGroupResponse
from transport.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from transport.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from transport.protocol.messages.offset_commit import OffsetCommitResponse
from transport.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from transport.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

NOBODY: Final = "-"
BEAT: Final = 68
LATEST[BEAT] = 1
ORDERS_KEY: Final[PartitionKey] = (ORDERS.id, 0)


class Client(Struct):
    """A client, with what it was told."""

    member_id: str = ""
    generation: int = -1
    group_id: str = "g"


class Stage(GroupBrokers):
    """The broker, which notes its answers with their times."""

    def __init__(self, **settings: Any) -> None:
        self.noted: list[tuple[int, int, Any]] = []
        self.start_ms = 0
        super().__init__(**settings)
        self.start_ms = self.brokers.now_ms
        self.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))

    def take(self, outcomes: list[Outcome]) -> None:
        """Note the answers."""
        for one in outcomes:
            assert isinstance(one, Answer), one
            self.noted.append((self.brokers.now_ms - self.start_ms, one.request_id, one.message))


class GroupPlayer:
    """Carries out the commands of one file."""

    settings: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._stage = Stage()
        self._clients: dict[str, Client] = {}
        self._asked: dict[int, str] = {}

    def act(self, name: str, words: tuple[str, ...]) -> list[str]:
        """Carry out a command; returns what was answered."""
        plain, given = parted(words)
        if name == "groups":
            self._stage = Stage(**{key: int(value) for key, value in given.items()})
            self._clients, self._asked = {}, {}
        elif name == "at":
            stage = self._stage
            stage.wait(int(plain[0]) - (stage.brokers.now_ms - stage.start_ms))
        else:
            self._send(name, plain, given)
        noted, self._stage.noted = self._stage.noted, []
        return [self._line(*one) for one in noted]

    def _send(self, name: str, plain: list[str], given: dict[str, str]) -> None:
        who = plain[0] if name not in ("fetch", "describe", "delete", "list", "delete-offset") else NOBODY
        client = self._clients.setdefault(who, Client())
        client.group_id = given.pop("group", client.group_id)
        version = int(given["version"]) if "version" in given else None
        message = self._request(name, client, plain, given)
        # The answer may come before the number of the request is known.
        self._asked[self._stage._last_id + 1] = who
        self._stage.send(message, version, client_id=who)

    def _request(self, name: str, client: Client, plain: list[str], given: dict[str, str]) -> Message:
        member_id = given.get("id", client.member_id)
        generation = int(given.get("generation", client.generation))
        instance_id = given.get("instance")
        match name, plain:
            case "join", _:
                return joining(
                    client.group_id,
                    member_id=member_id,
                    instance_id=instance_id,
                    protocols=tuple((one, b"m") for one in given.get("protocols", "range").split(",") if one),
                    session_ms=int(given.get("session", SESSION_MS)),
                    rebalance_ms=int(given.get("rebalance", 9000)),
                )
            case "sync", _:
                assignments = [
                    SyncGroupRequestAssignment(self._clients[one].member_id, value.encode())
                    for one, value in given.items()
                    if one in self._clients
                ]
                return SyncGroupRequest(
                    client.group_id, generation, member_id, instance_id, "consumer", "range", assignments
                )
            case "heartbeat", _:
                return HeartbeatRequest(client.group_id, generation, member_id, instance_id)
            case "leave", _:
                return LeaveGroupRequest(client.group_id, members=[MemberIdentity(member_id, instance_id)])
            case "commit", [_, offset]:
                return committing(int(offset), client.group_id, generation=generation, member_id=member_id)
            case "fetch", [group_id, *more]:
                topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
                groups = [OffsetFetchRequestGroup(group_id=group_id, topics=topics)]
                return OffsetFetchRequest(groups=groups, require_stable=bool(more))
            case "describe", [group_id]:
                return DescribeGroupsRequest([group_id])
            case "delete", [group_id]:
                return DeleteGroupsRequest([group_id])
            case "delete-offset", [group_id]:
                parts = [OffsetDeleteRequestPartition(0)]
                return OffsetDeleteRequest(group_id, [OffsetDeleteRequestTopic("orders", parts)])
            case "list", _:
                return ListGroupsRequest()
            case "beat", [who, epoch]:
                client.member_id = client.member_id or given.get("id", who)
                owned = None
                if epoch == "0" or "owned" in given:
                    numbers = [int(one) for one in given.get("owned", "").split(",") if one]
                    parts_of = beats.ConsumerGroupHeartbeatRequestTopicPartitions(ORDERS.id, numbers)
                    owned = [parts_of] if numbers else []
                return beats.ConsumerGroupHeartbeatRequest(
                    client.group_id,
                    client.member_id,
                    client.generation if epoch == "last" else int(epoch),
                    instance_id,
                    rebalance_timeout_ms=9000 if epoch == "0" else -1,
                    subscribed_topic_names=given.get("topics", "orders").split(",") if epoch == "0" else None,
                    topic_partitions=owned,
                )
        raise AssertionError(f"no such command: {name} {plain}")

    # ---------------------------------------------------------------------------------------------------------- answers

    def _line(self, ms: int, request_id: int, message: Any) -> str:
        who = self._asked.pop(request_id)
        shown = "client" if who == NOBODY else who
        return f"{ms} {shown} => {self._text(self._clients[who], message)}".rstrip()

    def _name(self, member_id: str) -> str:
        names = [name for name, one in self._clients.items() if one.member_id == member_id]
        return names[0] if names and member_id else "?"

    def _text(self, client: Client, message: Any) -> str:
        error = Error.of(getattr(message, "error_code", 0))
        match message:
            case JoinGroupResponse():
                if error in (Error.NONE, Error.MEMBER_ID_REQUIRED):
                    client.member_id = message.member_id
                if error is not Error.NONE:
                    return f"join {error.name}"
                client.generation = message.generation_id
                members = ",".join(self._name(one.member_id) for one in message.members) or NOBODY
                leader = self._name(message.leader)
                generation = f"generation={message.generation_id} protocol={message.protocol_name}"
                return f"join {generation} leader={leader} members={members}"
            case SyncGroupResponse():
                return f"sync {error.name}" + (f" {message.assignment.decode()}" if message.assignment else "")
            case LeaveGroupResponse():
                return "leave " + " ".join([error.name, *(Error.of(one.error_code).name for one in message.members)])
            case OffsetCommitResponse():
                return f"commit {Error.of(message.topics[0].partitions[0].error_code).name}"
            case OffsetFetchResponse():
                [group] = message.groups
                if group.error_code:
                    return f"fetch {Error.of(group.error_code).name}"
                one = group.topics[0].partitions[0]
                return f"fetch {Error.of(one.error_code).name} offset={one.committed_offset}"
            case DescribeGroupsResponse():
                [described] = message.groups
                members = ",".join(sorted(self._name(one.member_id) for one in described.members)) or NOBODY
                return f"describe {described.group_state} members={members}"
            case DeleteGroupsResponse():
                return f"delete {Error.of(message.results[0].error_code).name}"
            case OffsetDeleteResponse():
                parts = [Error.of(one.error_code).name for topic in message.topics for one in topic.partitions]
                return "delete-offset " + " ".join([error.name, *parts])
            case ListGroupsResponse():
                return "list " + " ".join(
                    f"{one.group_id}:{one.group_type}:{one.group_state}" for one in message.groups
                )
            case beats.ConsumerGroupHeartbeatResponse():
                if error is not Error.NONE:
                    return f"beat {error.name}"
                client.generation = message.member_epoch
                told = message.assignment
                numbers = [] if told is None else [n for one in told.topic_partitions for n in one.partitions]
                kept = "unchanged" if told is None else ",".join(map(str, sorted(numbers))) or NOBODY
                return f"beat epoch={message.member_epoch} partitions={kept}"
        return f"{type(message).__name__.removesuffix('Response').lower()} {error.name}"
