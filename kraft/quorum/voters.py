"""The voter set and majority arithmetic (Kafka: `VoterSet`, `QuorumConfig.parseVoterConnections`)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from kraft.quorum.values import DEFAULT_LISTENER, Endpoints, ListenerAddress, ReplicaKey


def majority(count: int) -> int:
    """How many of `count` voters are more than half of them."""
    return count // 2 + 1


class Voter(Struct, frozen=True):
    """One voter: who it is and where it listens. In a static quorum its directory id is not known (zero)."""

    key: ReplicaKey
    endpoints: Endpoints

    @property
    def id(self) -> int:
        """The node id."""
        return self.key.id


class VoterSet(Struct, frozen=True):
    """The voters in ascending order of their ids."""

    voters: tuple[Voter, ...]

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        """A set in canonical order; two voters with one id are a `ValueError`."""
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

    @property
    def ids(self) -> tuple[int, ...]:
        """The node ids, ascending."""
        return tuple(voter.id for voter in self.voters)

    @property
    def majority(self) -> int:
        """The number of voters that decide."""
        return majority(len(self.voters))

    def find(self, node_id: int) -> Voter | None:
        """The voter with this node id, whatever its directory."""
        for voter in self.voters:
            if voter.key.id == node_id:
                return voter
        return None

    def contains(self, key: ReplicaKey) -> bool:
        """Whether this very replica votes: the id is in the set, under this directory or an unknown one."""
        voter = self.find(key.id)
        return voter is not None and voter.key.matches(key)

    def is_only(self, key: ReplicaKey) -> bool:
        """Whether this replica is a majority all by itself."""
        return len(self.voters) == 1 and self.contains(key)

    def others(self, key: ReplicaKey) -> tuple[Voter, ...]:
        """Every voter but this replica."""
        return tuple(voter for voter in self.voters if not voter.key.matches(key))

    def __len__(self) -> int:
        return len(self.voters)
