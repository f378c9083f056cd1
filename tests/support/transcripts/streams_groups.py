"""The language of `tests/transcripts/streams_groups`: a coordinator of streams groups in virtual time.

    > streams-groups [NAME=VALUE …]   a new coordinator at 0 ms, with settings of streams groups; without them targets
                                      do not wait. The topic `a` has 4 partitions.
    > beat m EPOCH [NAME=VALUE …]     a heartbeat; EPOCH may be `last`, the epoch of the last answer
          topology=0:a,b>out+store/1:~again   subtopologies: sources, `~` for a repartition topic, `>` for sinks, `+`
                                      for changelogs; only with epoch 0, and then `0:a` unless it is named
          owns=0:0,1                  the active tasks that the member owns; `owns=-` for none, `owns=all` for what it
                                      was given, in all roles
          instance=i process=p tags=k:v endpoint=host:port shutdown=yes offsets=0:1:7 version=0
    > topic NAME COUNT                the topic has so many partitions; 0 deletes it
    > set KEY=VALUE …                 the configuration of the group
    > state                           the group, and each member: its epoch and state, and its tasks
    > restart                         another broker takes over
    > at MS                           time passes

`MS m => …` is an answer: the epoch, the tasks as `active:`, `standby:` and so on if they are told, and the words of
Kafka for what else is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kraft.access.errors import ApiError
from kraft.coordinators.groups.state import streams_group
from kraft.coordinators.groups.streams.topology import Status
from support.broker.share_world import START_MS
from support.broker.streams_world import StreamsWorld, subtopology, topology
from support.transcripts.driver import parted
from transport.protocol.messages import streams_group_heartbeat as messages

ROLES: Final = ("active", "standby", "warmup")
Told = Mapping[str, Iterable[int]]


class StreamsGroupPlayer:
    """Carries out the commands of one file."""

    settings: Mapping[str, str] = {
        "beat": "topology owns instance process tags endpoint shutdown offsets version",
    }

    def __init__(self) -> None:
        self._begin({})

    def _begin(self, given: Mapping[str, str]) -> None:
        self._world = StreamsWorld(**{name: int(value) for name, value in given.items()})
        self._world.topic("a", 4)
        self._epochs: dict[str, int] = {}

    def act(self, name: str, words: tuple[str, ...]) -> list[str]:
        """Carry out a command; returns what was answered."""
        plain, given = parted(words)
        world = self._world
        match name, plain:
            case "streams-groups", _:
                self._begin(given)
            case "at", [ms]:
                world.wait(int(ms) - self._ms)
            case "topic", [topic, count]:
                world.topic(topic, int(count))
            case "set", _:
                world.configure("g", **{key.replace(".", "_"): value for key, value in given.items()})
            case "restart", _:
                world.restart()
            case "state", _:
                return self._state()
            case "beat", [member_id, epoch]:
                return self._beat(member_id, epoch, given)
            case _:
                raise ValueError(f"{name} {' '.join(words)}")
        return []

    @property
    def _ms(self) -> int:
        return self._world.now_ms - START_MS

    def _beat(self, member_id: str, word: str, given: Mapping[str, str]) -> list[str]:
        epoch = self._epochs.get(member_id, 0) if word == "last" else int(word)
        fields: dict[str, Any] = {"version": int(given.get("version", "1"))}
        if epoch == 0:
            fields["topology"] = _topology(given.get("topology", "0:a"))
        if "owns" in given:
            fields["owned"] = self._owned(member_id, given["owns"])
        if "instance" in given:
            fields["instance_id"] = given["instance"]
        if "process" in given:
            fields["process_id"] = given["process"]
        if "tags" in given:
            fields["client_tags"] = [messages.KeyValue(*one.split(":")) for one in given["tags"].split(",")]
        if "endpoint" in given:
            host, port = given["endpoint"].split(":")
            fields["user_endpoint"] = messages.StreamsGroupHeartbeatRequestEndpoint(host, int(port))
        if "offsets" in given:
            told = (one.split(":") for one in given["offsets"].split(","))
            fields["task_offsets"] = [messages.TaskOffset(name, int(at), int(sum_)) for name, at, sum_ in told]
        fields["shutdown_application"] = "shutdown" in given
        try:
            answer = self._world.send(member_id, epoch, **fields)
        except ApiError as refused:
            text = f": {refused.text}" if refused.text else ""
            return [f"{self._ms} {member_id} => {refused.error.name}{text}"]
        self._epochs[member_id] = answer.member_epoch
        return [f"{self._ms} {member_id} => {self._told(answer)}"]

    def _owned(self, member_id: str, text: str) -> tuple[Told, Told, Told]:
        if text == "all":
            group = streams_group(self._world.state, "g")
            assert group is not None
            held = group.members[member_id].assigned
            return held.active, held.standby, held.warmup
        return ({} if text == "-" else _tasks(text)), {}, {}

    def _told(self, answer: Any) -> str:
        words = [f"epoch={answer.member_epoch}"]
        for role in ROLES:
            tasks = getattr(answer, f"{role}_tasks")
            if tasks:
                words.append(f"{role}:{_listed({one.subtopology_id: one.partitions for one in tasks})}")
            elif tasks is not None and role == "active":
                words.append("active:-")
        if answer.partitions_by_user_endpoint:
            words.append("endpoints:" + "/".join(map(_endpoint, answer.partitions_by_user_endpoint)))
        words += [f"{Status(one.status_code).name} ({one.status_detail})" for one in answer.status]
        told = self._world.told
        if told is not None and told.lacking:
            words.append("creates:" + ",".join(f"{one.name}:{one.partitions}" for one in told.lacking))
        return " ".join(words)

    def _state(self) -> list[str]:
        group = streams_group(self._world.state, "g")
        if group is None:
            return [f"{self._ms} g: none"]
        lines = [f"{self._ms} g: {group.state.value} epoch={group.epoch} targets={group.assignment_epoch}"]
        for name in sorted(group.members):
            member = group.members[name]
            held = " ".join(f"{role}:{_listed(getattr(member.assigned, role))}" for role in ROLES)
            revoking = f" revoking:{_listed(member.revoking.active)}" if member.revoking.active else ""
            lines.append(f"  {name} {member.state.name} epoch={member.epoch} {held}{revoking}")
        return lines


def _listed(tasks: Told) -> str:
    return ";".join(f"{name}:{','.join(map(str, sorted(tasks[name])))}" for name in sorted(tasks)) or "-"


def _tasks(text: str) -> dict[str, list[int]]:
    parts = (one.split(":") for one in text.split(";"))
    return {name: [int(number) for number in numbers.split(",")] for name, numbers in parts}


def _endpoint(one: Any) -> str:
    partitions = ",".join(f"{each.topic}-{number}" for each in one.active_partitions for number in each.partitions)
    return f"{one.user_endpoint.host}:{one.user_endpoint.port}({partitions})"


def _topology(text: str) -> messages.Topology:
    made = []
    for one in text.split("/"):
        name, _, rest = one.partition(":")
        rest, _, changelogs = rest.partition("+")
        read, _, sinks = rest.partition(">")
        topics = [each for each in read.split(",") if each]
        made.append(
            subtopology(
                name,
                *(each for each in topics if not each.startswith("~")),
                repartitions={each[1:]: 0 for each in topics if each.startswith("~")},
                sinks=[each for each in sinks.split(",") if each],
                changelogs=[each for each in changelogs.split(",") if each],
            )
        )
    return topology(*made)
