"""Damage that no checksum covers, and answers that are corrupted in transit: what the simulation does, and notices."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kraft.sim import Result
from kraft.sim.nodes.corruption import corrupted
from kraft.sim.nodes.node_disk import PARTITION, QUORUM_STATE, NodeDisk
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.world.actions import Action, Corrupt, DamageDisk
from kraft.sim.world.disk_damage import Damage
from kraft.sim.world.unchecked_damage import contradiction
from metadata_log.errors import MetadataLogError
from metadata_log.log.quorum_state_file import StoredElection, parse_quorum_state, write_quorum_state
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import new_batch
from transport.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData


def _disk(rng: Random, epoch: int) -> NodeDisk:
    disk = NodeDisk(1, rng, None)
    disk.files.mkdir(PARTITION)
    leader_id, voted_id = rng.choice((-1, 1, 2)), rng.choice((-1, 1, 2))
    stored = StoredElection(
        leader_epoch=epoch,
        leader_id=leader_id,
        voted_id=voted_id,
        current_voters=(1, 2, 3),
        data_version=rng.randrange(2),
    )
    write_quorum_state(disk.files, PARTITION, stored)
    return disk


@pytest.mark.parametrize("seed", range(100))
def test_a_damaged_quorum_state_is_refused_or_has_lost_a_vote_only(seed: int) -> None:
    """No damage invents a vote, a leader or a later epoch: nothing could contradict that."""
    rng = Random(seed)
    disk = _disk(rng, epoch=rng.randrange(40))
    before = parse_quorum_state(disk.files.peek(QUORUM_STATE))
    assert not contradiction(disk.files, QUORUM_STATE)
    damaged = disk.damage(Damage.ELECTION, rng)
    content = disk.files.peek(QUORUM_STATE)
    if disk.must_refuse():
        with pytest.raises(MetadataLogError):
            parse_quorum_state(content)
        return
    after = parse_quorum_state(content)
    assert (after.leader_id, after.voted_id) == (-1, -1) or not damaged
    assert after.leader_epoch <= before.leader_epoch


def test_the_epoch_of_a_batch_changes_only_against_the_rest_of_the_disk() -> None:
    changed = 0
    for seed in range(40):
        rng = Random(seed)
        disk = _disk(rng, epoch=9)
        path = f"{PARTITION}/00000000000000000000.log"
        file = disk.files.open(path, create=True)
        for offset, epoch in enumerate((1, 1, 4, 9)):
            file.append(new_batch(offset, epoch, 0, (b"x",)).data)
        file.fsync()
        assert not contradiction(disk.files, QUORUM_STATE)
        if disk.damage(Damage.EPOCHS, rng):
            changed += 1
            assert disk.must_refuse()
            epochs = [batch.epoch for batch in scan(disk.files.peek(path))]
            assert epochs != sorted(epochs) or max(epochs) > 9 or min(epochs) < 0
    assert changed > 30


def test_each_corruption_of_records_is_visible_to_a_receiver() -> None:
    """The CRC, the order of offsets and epochs, the leader's epoch, or a record at the start of an epoch shows each."""
    data = b"".join(new_batch(offset, 3, 0, (b"value",)).data for offset in range(4))
    leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=5)
    part = PartitionData(partition_index=0, high_watermark=4, current_leader=leader, records=data)
    answer = FetchResponse(responses=[FetchableTopicResponse(partitions=[part])])
    kinds: Counter[str] = Counter()
    for seed in range(400):
        found = corrupted(answer, 17, Random(seed))
        assert found is not None
        message, what = found
        if message is None:
            kinds["cut"] += 1
            continue
        assert isinstance(message, FetchResponse)
        arrived = message.responses[0].partitions[0].records
        assert arrived is not None
        try:
            batches = list(scan(arrived))
        except MetadataLogError:
            kinds["refused"] += 1
            continue
        offsets = [batch.base_offset for batch in batches]
        epochs = [batch.epoch for batch in batches]
        assert offsets != [0, 1, 2, 3] or epochs != [3, 3, 3, 3], what
        kinds["epoch" if offsets == [0, 1, 2, 3] else "offset"] += 1
    assert set(kinds) == {"cut", "refused", "epoch", "offset"}


def test_the_profile_of_unchecked_bytes_damages_elections_and_epochs() -> None:
    damaged: Counter[Damage] = Counter()
    for members in ("replica", "dynamic"):
        for seed in range(4):
            actions: list[Action] = []
            result = SeedSearch(members=members, profile="unchecked-bytes", chaos_ms=6_000).run(seed, actions)
            assert isinstance(result, Result), result.message
            damaged.update(action.what for action in actions if isinstance(action, DamageDisk))
    assert damaged[Damage.ELECTION] > 2
    assert damaged[Damage.EPOCHS] > 0


def test_the_profile_of_corruption_corrupts_fetches_and_snapshots() -> None:
    corruptions: Counter[str] = Counter()
    for members in ("replica", "dynamic"):
        for seed in range(3):
            actions: list[Action] = []
            result = SeedSearch(members=members, profile="corruption", chaos_ms=6_000).run(seed, actions)
            assert isinstance(result, Result), result.message
            corruptions.update(action.kind for action in actions if isinstance(action, Corrupt))
    assert corruptions["Fetch"] > 5
    assert corruptions["FetchSnapshot"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("members", ["replica", "controller", "state-machine", "dynamic", "cluster"])
@pytest.mark.parametrize("profile", ["unchecked-bytes", "corruption"])
def test_invariants_hold_in_a_hundred_runs_of_each_profile(members: str, profile: str) -> None:
    search = SeedSearch(members=members, profile=profile)
    outcomes = [search.run(seed) for seed in range(100)]
    assert [one.message for one in outcomes if not isinstance(one, Result)] == []
