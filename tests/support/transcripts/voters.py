"""Commands of transcripts for dynamic quorums: nodes with directory ids, requests that change the voters."""

from __future__ import annotations

from collections.abc import Mapping

from kraft.quorum.effects import ControlRecord
from kraft.quorum.messages import (
    AddVoter,
    AddVoterReply,
    ProbeVersions,
    ProbeVersionsReply,
    RemoveVoter,
    RemoveVoterReply,
    UpdateVoter,
    UpdateVoterReply,
)
from kraft.quorum.values import OWN_KRAFT_VERSIONS, Endpoints, ListenerAddress, QuorumConfig, ReplicaKey, VersionRange
from kraft.quorum.voter_history import DYNAMIC, recorded_in
from kraft.quorum.voters import Voter, VoterSet
from kraft.sim.nodes.core_member import CoreMember
from metadata_log.records.control import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from metadata_log.types import Uuid
from transport.protocol.errors import Error

PORT = 9000

VoterMessage = AddVoter | RemoveVoter | UpdateVoter | ProbeVersions
VoterMessageReply = AddVoterReply | RemoveVoterReply | UpdateVoterReply | ProbeVersionsReply


def key_of(text: str) -> ReplicaKey:
    """The replica `4`, or `4'` with its second disk."""
    number = text.rstrip("'")
    return ReplicaKey(int(number), Uuid(bytes([len(text) - len(number)]) + bytes(14) + bytes([100 + int(number)])))


def name_of(key: ReplicaKey) -> str:
    """The same as text."""
    return f"{key.id}{chr(39) * bytes(key.directory_id)[0]}"


def voter_of(key: ReplicaKey, port: int = PORT, versions: VersionRange = OWN_KRAFT_VERSIONS) -> Voter:
    """How a replica votes that listens on this port of its host."""
    return Voter(key, Endpoints((ListenerAddress("CONTROLLER", f"n{key.id}", port),)), versions)


class DynamicMember(CoreMember):
    """A core of a node with a directory id, as in every dynamic quorum.

    A node that was not formatted with the voters finds them by its configuration.
    """

    def __init__(self, key: ReplicaKey, *, voters: VoterSet, config: QuorumConfig) -> None:
        formatted = recorded_in(0, DYNAMIC, voters) if key in voters.keys else ()
        super().__init__(key.id, voters=voters, config=config, formatted=formatted)
        self.key = key
        self.port = PORT

    @property
    def endpoints(self) -> Endpoints:
        """Where it listens in this life."""
        return voter_of(self.key, self.port).endpoints


def control_text(record: ControlRecord) -> str:
    """The content of a control record."""
    match record:
        case LeaderChangeMessage():
            voters = ",".join(str(one.voter_id) for one in record.voters)
            granting = ",".join(str(one.voter_id) for one in record.granting_voters)
            return f"LeaderChange leader={record.leader_id} voters={voters} granting={granting}"
        case KRaftVersionRecord():
            return f"KRaftVersion {record.kraft_version}"
        case VotersRecord():
            return f"Voters {voters_text(VoterSet.of_record(record))}"
    raise AssertionError(record)


def voters_text(voters: VoterSet) -> str:
    """The voters, each with its port if that is not the usual one."""
    return ",".join(name_of(one.key) + _port_text(one.endpoints) for one in voters.voters)


def _port_text(endpoints: Endpoints) -> str:
    address = endpoints.default
    assert address is not None
    return "" if address.port == PORT else f":{address.port}"


def voter_message(what: str, given: Mapping[str, str]) -> VoterMessage | None:
    """A request of this name about `voter=`; None if it is none of these."""
    match what:
        case "AddVoter":
            return AddVoter(voter_of(key_of(given["voter"])), given.get("ack") != "written")
        case "RemoveVoter":
            return RemoveVoter(key_of(given["voter"]))
        case "UpdateVoter":
            name, _, port = given["voter"].partition(":")
            voter = voter_of(key_of(name), int(port or PORT), _versions(given.get("supports", "0-1")))
            return UpdateVoter(epoch=int(given["epoch"]), voter=voter)
    return None


def voter_reply(what: str, given: Mapping[str, str]) -> VoterMessageReply | None:
    """An answer of this name; None if it is none of these."""
    error = Error[given.get("error", "NONE")]
    match what:
        case "ProbeVersionsReply":
            return ProbeVersionsReply(_versions(given["supports"]) if "supports" in given else None, error)
        case "AddVoterReply":
            return AddVoterReply(error)
        case "RemoveVoterReply":
            return RemoveVoterReply(error)
    return None


def _versions(text: str) -> VersionRange:
    lowest, _, highest = text.partition("-")
    return VersionRange(int(lowest), int(highest))


def message_text(message: object) -> list[str]:
    """The content of such a request or answer beside its name."""
    match message:
        case AddVoter(voter):
            return [f"voter={name_of(voter.key)}{_port_text(voter.endpoints)}"]
        case RemoveVoter(key):
            return [f"voter={name_of(key)}"]
        case UpdateVoter(epoch=epoch, voter=voter):
            versions = voter.kraft_versions
            place = name_of(voter.key) + _port_text(voter.endpoints)
            return [f"epoch={epoch}", f"voter={place}", f"supports={versions.lowest}-{versions.highest}"]
        case AddVoterReply(error, text) | RemoveVoterReply(error, text):
            return [error.name, *([repr(text)] if text else [])]
        case UpdateVoterReply(epoch=epoch, leader_id=leader_id, error=error):
            return [f"epoch={epoch}", f"leader={leader_id}", error.name]
    return []
