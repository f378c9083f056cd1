"""What a simulated member of a group sends late."""

from __future__ import annotations

from random import Random

import pytest

from kraft.sim.workloads.coordinator_clients import ClassicMember, World
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid
from transport.protocol.messages.offset_commit import OffsetCommitRequest

TOPIC = Uuid(bytes(15) + b"\x07")


@pytest.mark.parametrize(
    ("is_mixed", "commits"), [(False, [("a", 4), ("a", 5), ("b", 6)]), (True, [("a", 5)])], ids=["classic", "mixed"]
)
def test_no_commit_is_late_where_a_consumer_group_takes_it(is_mixed: bool, commits: list[tuple[str, int]]) -> None:
    """A consumer group takes a commit of a former epoch of its member, over a newer one (`coordinator-cluster` seed
    5032).
    """
    member = ClassicMember(Random(1), World(MetadataImage()), "group", 0, is_mixed=is_mixed)
    member._former = [("a", 4, {0: 7}), ("a", 5, {0: 9}), ("b", 6, {0: 10})]
    member._member_id, member._epoch = "b", 7
    late = [
        (member_id, epoch)
        for member_id, epoch, positions in member._former * 20
        if isinstance(member._late(TOPIC, member_id, epoch, positions), OffsetCommitRequest)
    ]
    assert sorted(set(late)) == commits
