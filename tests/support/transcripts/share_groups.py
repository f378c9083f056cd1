"""The language of `tests/transcripts/share_groups`: three brokers in virtual time, of which 101 coordinates all groups.

    > share-groups [NAME=VALUE …]            new brokers at 0 ms, with settings of share groups and `version=` of
                                             share.version; topic `a` has 2 partitions, `b` has 1, each with 10 records
    > beat m EPOCH [topics=a,b group=g]      ShareGroupHeartbeat of the member `m`
    > describe g / list [TYPE] / delete g
    > offsets g [a:0,1 …]                    DescribeShareGroupOffsets
    > alter g a:0=5,1=7 …                    AlterShareGroupOffsets
    > forget g a …                           DeleteShareGroupOffsets
    > topic NAME COUNT                       the topic has so many partitions; 0 deletes it
    > set g KEY=VALUE …                      the configuration of the group
    > level N                                share.version
    > states down / states up                the broker with half of the share coordinators
    > at MS                                  time passes

`MS m => …` is an answer. Everything settles after each command; `… waits` is a request that is not answered then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.broker.request_brokers import NewTopic, batch, produce, topic_id
from support.broker.share_groups import ShareBrokers
from support.transcripts.driver import parted
from transport.protocol.errors import Error
from transport.protocol.messages import alter_share_group_offsets as alterations
from transport.protocol.messages import delete_share_group_offsets as deletions
from transport.protocol.messages import describe_share_group_offsets as descriptions
from transport.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from transport.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from transport.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from transport.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

COORDINATOR: Final = 101
GROUP: Final = 32
"""The resource type of the configuration of a group."""
RECORDS: Final = 10
CLIENT: Final = "client"


class ShareGroupPlayer:
    """Carries out the commands of one file."""

    settings: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._begin({})

    def _begin(self, given: dict[str, str]) -> None:
        settings: dict[str, Any] = {name: int(value) for name, value in given.items()}
        topics = (
            NewTopic("a", topic_id(40), ((COORDINATOR,), (102,))),
            NewTopic("b", topic_id(41), ((103,),)),
        )
        self._world = ShareBrokers(*topics, **settings)
        for one in topics:
            for number, (leader, *_) in enumerate(one.partitions):
                self._world.ask(leader, produce((one.id, number), batch(*[b"x"] * RECORDS)))
        self._epochs: dict[str, int] = {}
        self._waiting: dict[int, str] = {}
        self._topics = 41
        self._start_ms = self._world.now_ms

    def act(self, name: str, words: tuple[str, ...]) -> list[str]:
        """Carry out a command; returns what was answered."""
        plain, given = parted(words)
        world = self._world
        match name, plain:
            case "share-groups", _:
                self._begin(given)
                return []
            case "at", [ms]:
                world.wait(int(ms) - (world.now_ms - self._start_ms))
                return self._answered()
            case "topic", [topic, count]:
                self._change_topic(topic, int(count))
                return self._answered()
            case "set", [group_id]:
                world.brokers.change(
                    *(
                        records.ConfigRecord(resource_type=GROUP, resource_name=group_id, name=key, value=value)
                        for key, value in given.items()
                    )
                )
                return []
            case "level", [level]:
                world.brokers.change(records.FeatureLevelRecord(name="share.version", feature_level=int(level)))
                return []
            case "states", [what]:
                world.down = {102} if what == "down" else set()
                return []
        who = plain[0] if name == "beat" else CLIENT
        request_id = world.send(COORDINATOR, self._request(name, plain, given, words), client_id=who)
        self._waiting[request_id] = who
        answered = self._answered()
        return answered if request_id not in self._waiting else [*answered, f"{self._ms} {who} waits"]

    @property
    def _ms(self) -> int:
        return self._world.now_ms - self._start_ms

    def _answered(self) -> list[str]:
        at_ms = self._ms
        self._world.settle()
        self._world.brokers.now_ms = at_ms + self._start_ms
        lines = []
        for request_id, message in sorted(self._world.answers.items()):
            who = self._waiting.pop(request_id)
            lines.append(f"{at_ms} {who} => {self._text(who, message)}".rstrip())
        self._world.answers.clear()
        return lines

    def _change_topic(self, name: str, count: int) -> None:
        brokers = self._world.brokers
        known = brokers.image.topics.get(name)
        if not count:
            assert known is not None, name
            brokers.change(records.RemoveTopicRecord(topic_id=known.id))
            return
        added: list[Message] = []
        if known is None:
            self._topics += 1
            added.append(records.TopicRecord(name=name, topic_id=topic_id(self._topics)))
        topic = topic_id(self._topics) if known is None else known.id
        first = 0 if known is None else len(known.partitions)
        added += [
            records.PartitionRecord(
                partition_id=number,
                topic_id=topic,
                replicas=(COORDINATOR,),
                isr=(COORDINATOR,),
                leader=COORDINATOR,
                leader_epoch=0,
                partition_epoch=0,
                directories=(Uuid(bytes([0, COORDINATOR] * 8)),),
            )
            for number in range(first, count)
        ]
        brokers.change(*added)

    def _request(self, name: str, plain: list[str], given: dict[str, str], words: tuple[str, ...]) -> Message:
        match name, plain:
            case "beat", [who, epoch]:
                number = self._epochs.get(who, 0) if epoch == "last" else int(epoch)
                names = (
                    [one for one in given["topics"].split(",") if one]
                    if "topics" in given
                    else ["a"]
                    if number == 0
                    else None
                )
                return ShareGroupHeartbeatRequest(given.get("group", "g"), who, number, None, names)
            case "describe", groups:
                return ShareGroupDescribeRequest(groups)
            case "list", types:
                return ListGroupsRequest(types_filter=types)
            case "delete", groups:
                return DeleteGroupsRequest(groups)
            case "offsets", [group_id, *places]:
                named = [
                    descriptions.DescribeShareGroupOffsetsRequestTopic(topic, list(map(int, numbers.split(","))))
                    for topic, _, numbers in (one.partition(":") for one in places)
                ]
                asked = descriptions.DescribeShareGroupOffsetsRequestGroup(group_id, named or None)
                return descriptions.DescribeShareGroupOffsetsRequest([asked])
            case "forget", [group_id, *names]:
                topics = [deletions.DeleteShareGroupOffsetsRequestTopic(one) for one in names]
                return deletions.DeleteShareGroupOffsetsRequest(group_id, topics)
            case "alter", [group_id]:
                changed = []
                for topic, _, values in (one.partition(":") for one in words[1:]):
                    pairs = [one.split("=") for one in values.split(",")]
                    parts = [alterations.AlterShareGroupOffsetsRequestPartition(int(n), int(at)) for n, at in pairs]
                    changed.append(alterations.AlterShareGroupOffsetsRequestTopic(topic, parts))
                return alterations.AlterShareGroupOffsetsRequest(group_id, changed)
        raise AssertionError(f"no such command: {name} {plain}")

    # ---------------------------------------------------------------------------------------------------------- answers

    def _name(self, topic: Uuid) -> str:
        known = self._world.brokers.image.topics.by_id.get(topic)
        return "?" if known is None else known.name

    def _text(self, who: str, message: Any) -> str:
        error = Error.of(getattr(message, "error_code", 0))
        match message:
            case ShareGroupHeartbeatResponse():
                if error is not Error.NONE:
                    return f"beat {error.name}"
                self._epochs[who] = message.member_epoch
                told = "unchanged"
                if message.assignment is not None:
                    topics = message.assignment.topic_partitions
                    told = " ".join(f"{self._name(one.topic_id)}:{_numbers(one.partitions)}" for one in topics) or "-"
                return f"beat epoch={message.member_epoch} interval={message.heartbeat_interval_ms} {told}"
            case ShareGroupDescribeResponse():
                return "describe " + " / ".join(map(_described, message.groups))
            case ListGroupsResponse():
                return "list " + " ".join(
                    f"{one.group_id}:{one.group_type}:{one.protocol_type}:{one.group_state}" for one in message.groups
                )
            case DeleteGroupsResponse():
                return "delete " + " ".join(
                    f"{one.group_id}:{Error.of(one.error_code).name}" for one in message.results
                )
            case descriptions.DescribeShareGroupOffsetsResponse():
                (group,) = message.groups
                if group.error_code:
                    return f"offsets {Error.of(group.error_code).name}"
                return "offsets " + " ".join(
                    f"{topic.topic_name}-{one.partition_index}@{one.start_offset} lag={one.lag}{_error(one.error_code)}"
                    for topic in group.topics
                    for one in topic.partitions
                )
            case alterations.AlterShareGroupOffsetsResponse():
                if error is not Error.NONE:
                    return f"alter {error.name}"
                return "alter " + " ".join(
                    f"{topic.topic_name}-{one.partition_index}:{Error.of(one.error_code).name}"
                    for topic in message.responses
                    for one in topic.partitions
                )
            case deletions.DeleteShareGroupOffsetsResponse():
                if error is not Error.NONE:
                    return f"forget {error.name}"
                return "forget " + " ".join(
                    f"{topic.topic_name}:{Error.of(topic.error_code).name}" for topic in message.responses
                )
        raise AssertionError(message)


def _numbers(partitions: list[int]) -> str:
    return ",".join(map(str, sorted(partitions)))


def _error(code: int) -> str:
    return f" {Error.of(code).name}" if code else ""


def _described(group: Any) -> str:
    if group.error_code:
        return f"{group.group_id} {Error.of(group.error_code).name}"
    epochs = f"epoch={group.group_epoch} targets={group.assignment_epoch}"
    members = [
        f"{one.member_id}@{one.member_epoch}("
        + " ".join(f"{topic.topic_name}:{_numbers(topic.partitions)}" for topic in one.assignment.topic_partitions)
        + ")"
        for one in sorted(group.members, key=lambda each: each.member_id)
    ]
    return " ".join([group.group_id, group.group_state, epochs, *members])
