"""The voter set and majority arithmetic (Kafka: `VoterSet`, `QuorumConfig.parseVoterConnections`)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct

from kraft.quorum.values import DEFAULT_LISTENER, Endpoints, ListenerAddress, ReplicaKey, VersionRange
from metadata_log.records.control import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter


def majority(count: int) -> int:
    """The size of a majority of `count` voters."""
    return count // 2 + 1


class Voter(Struct, frozen=True):
    """One voter: its key and its endpoints. In a static quorum the directory id is not known (zero)."""

    key: ReplicaKey
    endpoints: Endpoints
    kraft_versions: VersionRange = VersionRange()
    """The levels of kraft.version that the voter supports."""

    @property
    def id(self) -> int:
        """The node id."""
        return self.key.id


class VoterSet(Struct, frozen=True, dict=True):
    """The voters in ascending order of their ids."""

    voters: tuple[Voter, ...]

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        """A set in ascending order of ids; raises `ValueError` if two voters have one id."""
        ordered = tuple(sorted(voters, key=lambda voter: voter.id))
        ids = [voter.id for voter in ordered]
        if len(set(ids)) != len(ids):
            raise ValueError(f"a voter id appears twice: {ids}")
        return cls(ordered)

    @classmethod
    def parse(cls, text: str, listener: str = DEFAULT_LISTENER) -> VoterSet:
        """Read `controller.quorum.voters`: `1@host:port,2@host:port,…`; raises `ValueError` naming the bad entry."""
        voters = []
        for entry in filter(None, (part.strip() for part in text.split(","))):
            node, at, address = entry.partition("@")
            host, colon, port = address.rpartition(":")
            if not (at and colon and node.isdecimal() and port.isdecimal() and host):
                raise ValueError(f"expected id@host:port, found {entry!r}")
            name = ListenerAddress(listener, host.strip("[]"), int(port))
            voters.append(Voter(ReplicaKey(int(node)), Endpoints((name,))))
        return cls.of(voters)

    @classmethod
    def of_record(cls, record: VotersRecord) -> VoterSet:
        """The set of a voters record; raises `ValueError` for an invalid record. Listener names become upper case."""
        if not record.voters:
            raise ValueError("a voter set is empty")
        for one in record.voters:
            if one.voter_id < 0 or not one.endpoints:
                raise ValueError(f"voter {one.voter_id} of a voter set has no valid id or no endpoint")
        return cls.of(
            Voter(
                ReplicaKey(one.voter_id, one.voter_directory_id),
                Endpoints(tuple(ListenerAddress(at.name.upper(), at.host, at.port) for at in one.endpoints)),
                VersionRange(
                    one.kraft_version_feature.min_supported_version, one.kraft_version_feature.max_supported_version
                ),
            )
            for one in record.voters
        )

    def to_record(self) -> VotersRecord:
        """The voters record for the log."""
        return VotersRecord(
            voters=tuple(
                VotersRecordVoter(
                    voter_id=one.id,
                    voter_directory_id=one.key.directory_id,
                    endpoints=tuple(Endpoint(at.name, at.host, at.port) for at in one.endpoints.listeners),
                    kraft_version_feature=KRaftVersionFeature(one.kraft_versions.lowest, one.kraft_versions.highest),
                )
                for one in self.voters
            )
        )

    def with_voter(self, voter: Voter) -> VoterSet:
        """The set with this voter, in place of any other with its id."""
        return VoterSet.of((*(one for one in self.voters if one.id != voter.id), voter))

    def without(self, node_id: int) -> VoterSet:
        """The set without the voter of this id."""
        return VoterSet(tuple(one for one in self.voters if one.id != node_id))

    @cached_property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """The keys of the voters, in the order of the ids."""
        return tuple(voter.key for voter in self.voters)

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """The node ids, ascending."""
        return tuple(voter.id for voter in self.voters)

    @property
    def majority(self) -> int:
        """The number of voters in a majority."""
        return majority(len(self.voters))

    def find(self, node_id: int) -> Voter | None:
        """The voter with this node id, with any directory id; None if there is none."""
        for voter in self.voters:
            if voter.key.id == node_id:
                return voter
        return None

    def contains(self, key: ReplicaKey) -> bool:
        """Whether this replica is a voter: the set has its node id, with the same or an unknown directory id."""
        voter = self.find(key.id)
        return voter is not None and voter.key.matches(key)

    def is_only(self, key: ReplicaKey) -> bool:
        """Whether this replica is the only voter."""
        return len(self.voters) == 1 and self.contains(key)

    def other_ids(self, node_id: int) -> tuple[int, ...]:
        """The ids of the voters on other nodes."""
        return tuple(voter.id for voter in self.voters if voter.id != node_id)

    def __len__(self) -> int:
        return len(self.voters)


class QuorumChange(Struct, frozen=True):
    """The change by a control record at `offset`: another voter set or another kraft.version."""

    offset: int
    value: VoterSet | int
