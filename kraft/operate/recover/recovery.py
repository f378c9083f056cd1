"""The files of a recovery, as values: nothing is written here (Kafka has no tool for this; compare KIP-1347).

Originals are only ever sources. Each new directory gets the seed's log and snapshots byte for byte, one control batch
with the new voters, the records that repair the image, and a quorum-state without a vote, all of the recovery's epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from msgspec import Struct, to_builtins

from kraft.operate.recover.description import AcceptedStray, DescribedVoter, Description
from kraft.operate.recover.hazards import Stray, find_hazards
from kraft.operate.recover.inventory import BROKER, CONTROLLER
from kraft.operate.recover.plan import Plan
from kraft.operate.recover.records import Versioned, appended_records
from metadata_log.errors import DirectoryError
from metadata_log.image import MetadataImage
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import format_epochs
from metadata_log.log.log_dir import (
    BOOTSTRAP_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    MetaProperties,
    format_meta_properties,
)
from metadata_log.log.quorum_state_file import FILE_NAME as QUORUM_STATE
from metadata_log.log.quorum_state_file import StoredElection, format_quorum_state
from metadata_log.log.segment import file_name
from metadata_log.log.snapshot import snapshot_name
from metadata_log.records.batch_builder import build_batch, build_control_batch
from metadata_log.records.control import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    VotersRecord,
    VotersRecordVoter,
)
from metadata_log.records.frame import encode_control, encode_record
from metadata_log.serde import Message
from metadata_log.types import METADATA_PARTITION, NO_NODE, PARTITION_DIRECTORY, OffsetAndEpoch, Uuid, random_uuid

RECORDS_PER_BATCH: Final = 1000
DEFAULT_LISTENER: Final = "CONTROLLER"
_METADATA_TOPIC_TEXT: Final = f"version: 0\ntopic_id: {Uuid.METADATA_TOPIC}".encode("ascii")


class Address(Struct, frozen=True):
    """A voter after the recovery, and where the other nodes reach it."""

    id: int
    host: str
    port: int


class Choices(Struct, frozen=True, kw_only=True):
    """The operator's choices for the files.

    Args:
        voters: The voters after the recovery. Empty: the node of the seed alone.
        endpoints: New addresses of the voters of before. The voter set stays, and so do the directory ids.
        kraft_version: 1 to make a static quorum dynamic; None to leave the level as it is.
        listener: The name of the controllers' listener; None for the one in the seed.
        rescue: The topics to rescue that only the brokers know, or "all".
        from_image: Whether to write a snapshot of the image instead of the log.
    """

    voters: tuple[Address, ...] = ()
    endpoints: tuple[Address, ...] = ()
    kraft_version: int | None = None
    listener: str | None = None
    rescue: tuple[str, ...] = ()
    from_image: bool = False


class Voter(Struct, frozen=True, kw_only=True):
    """A voter after the recovery; `endpoint` is None if a static quorum keeps its configuration."""

    id: int
    directory_id: Uuid
    endpoint: Endpoint | None


class CopiedFile(Struct, frozen=True, kw_only=True):
    """The first bytes of a file, and bytes after them; `size` is None for the whole source."""

    path: str
    source: str
    size: int | None = None
    appended: bytes = b""
    read_only: bool = False


class NewFile(Struct, frozen=True, kw_only=True):
    """A small file."""

    path: str
    content: bytes


class NewSnapshot(Struct, frozen=True, kw_only=True):
    """A snapshot of an image, in a partition directory."""

    directory: str
    snapshot: OffsetAndEpoch
    image: MetadataImage
    kraft_version: int
    voters: VotersRecord | None
    timestamp_ms: int


FileToWrite = CopiedFile | NewFile | NewSnapshot


class NodeFiles(Struct, frozen=True, kw_only=True):
    """The new log directory of one voter. `files` are in the order of writing, meta.properties last."""

    voter: Voter
    directory: str
    files: tuple[FileToWrite, ...]


class Recovery(Struct, frozen=True, kw_only=True):
    """A recovery as files.

    Args:
        plan: The plan.
        kraft_version: The level of kraft.version after the recovery.
        voters: The voters.
        control: The appended control records.
        records: The appended data records.
        image: The image after all records.
        log_end: The end of each new log.
        nodes: The new directories.
        strays: The partition directories that stay stray, and which the operator accepts by using the result.
    """

    plan: Plan
    kraft_version: int
    voters: tuple[Voter, ...]
    control: tuple[Message, ...]
    records: tuple[Versioned, ...]
    image: MetadataImage
    log_end: int
    nodes: tuple[NodeFiles, ...]
    strays: tuple[Stray, ...]


def make_recovery(plan: Plan, choices: Choices, *, rng: Random, now_ms: int) -> Recovery:
    """Compute the files of a recovery; paths are relative to the new directory. `rng` draws new directory ids, `now_ms`
    is the time of the appended records. `DirectoryError` if the choices do not fit the plan.
    """
    kraft_version = _kraft_version(plan, choices)
    voters = _voters(plan, choices, kraft_version, rng)
    control: tuple[Message, ...] = ()
    if kraft_version > 0:
        control = (_voters_record(voters),)
        if plan.seed.quorum.kraft_version == 0:
            control = (KRaftVersionRecord(kraft_version=kraft_version), *control)
    records, image = appended_records(plan, choices.rescue)
    from_image = choices.from_image or not plan.seed.is_log_whole
    log_end = plan.append_at if from_image else plan.append_at + len(control) + len(records)
    time = max(now_ms, plan.seed.last_timestamp)
    recovery = Recovery(
        plan=plan,
        kraft_version=kraft_version,
        voters=voters,
        control=control,
        records=records,
        image=image,
        log_end=log_end,
        nodes=(),
        strays=find_hazards(plan.inventory, image).strays,
    )
    log = _image_files(recovery, time) if from_image else _log_files(recovery, time)
    nodes = tuple(
        NodeFiles(voter=voter, directory=f"node-{voter.id}", files=(*log, *_own_files(recovery, voter, now_ms)))
        for voter in voters
    )
    return Recovery(**{name: getattr(recovery, name) for name in recovery.__struct_fields__} | {"nodes": nodes})


def _kraft_version(plan: Plan, choices: Choices) -> int:
    before = plan.seed.quorum.kraft_version
    if choices.kraft_version is None or choices.kraft_version == before:
        return before
    if choices.kraft_version < before:
        raise DirectoryError(
            f"kraft.version is {before} in the log of {plan.best.name}, and never falls",
            hint="Leave --kraft-version out.",
        )
    return choices.kraft_version


# -------------------------------------------------------------------------------------------------------------- voters


def _voters(plan: Plan, choices: Choices, kraft_version: int, rng: Random) -> tuple[Voter, ...]:
    if choices.endpoints:
        return _moved_voters(plan, choices)
    best = plan.best
    addresses = choices.voters
    if not addresses:
        if best.role == BROKER:
            raise DirectoryError(
                f"the seed {best.name} is a broker's copy, so the new controller needs an id and an address",
                hint="Add --voters ID=HOST:PORT, with a node id that no broker has.",
            )
        if kraft_version == 0:
            return (Voter(id=best.meta.node_id, directory_id=_own_id(plan, rng), endpoint=None),)
        addresses = (_address_of_seed(plan),)
    _check_ids(plan, addresses)
    name = _listener(plan, choices)
    return tuple(
        Voter(
            id=one.id,
            directory_id=_own_id(plan, rng)
            if one.id == best.meta.node_id and best.role == CONTROLLER
            else random_uuid(rng),
            endpoint=Endpoint(name=name, host=one.host, port=one.port),
        )
        for one in sorted(addresses, key=lambda one: one.id)
    )


def _own_id(plan: Plan, rng: Random) -> Uuid:
    return plan.best.meta.directory_id or random_uuid(rng)


def _address_of_seed(plan: Plan) -> Address:
    voters = plan.seed.quorum.voters
    for voter in () if voters is None else voters.record.voters:
        if voter.voter_id == plan.best.meta.node_id and voter.endpoints:
            return Address(voter.voter_id, voter.endpoints[0].host, voter.endpoints[0].port)
    raise DirectoryError(
        f"the log does not tell the address of controller {plan.best.meta.node_id}",
        hint=f"Add --voters {plan.best.meta.node_id}=HOST:PORT.",
    )


def _check_ids(plan: Plan, addresses: Sequence[Address]) -> None:
    ids = [one.id for one in addresses]
    controllers = [one.meta.node_id for one in plan.inventory.dirs if one.role == CONTROLLER]
    for node_id in ids:
        if ids.count(node_id) > 1:
            raise DirectoryError(f"voter {node_id} appears twice", hint="Give each voter another id.")
        is_old = node_id in (plan.voters.ids or ()) or node_id in controllers
        if node_id in plan.image.brokers.by_id and not is_old:
            raise DirectoryError(
                f"{node_id} is the id of a broker", hint="Give the new controller an id that no node has."
            )


def _moved_voters(plan: Plan, choices: Choices) -> tuple[Voter, ...]:
    """The voters of before under new addresses: every one of them needs its directory."""
    old = plan.seed.quorum.voters
    if old is None or plan.seed.quorum.kraft_version == 0:
        raise DirectoryError(
            "a static quorum has its addresses in controller.quorum.voters alone",
            hint="Change the configuration of every node; no file needs a change.",
        )
    known = {one.meta.node_id: one.meta.directory_id for one in plan.inventory.dirs if one.role == CONTROLLER}
    moved = {one.id: one for one in choices.endpoints}
    voters = []
    for voter in old.record.voters:
        if known.get(voter.voter_id) != voter.voter_directory_id:
            raise DirectoryError(
                f"the directory of voter {voter.voter_id} was not given: new addresses alone need all voters",
                hint="Give it, or use --voters for the voters that remain.",
            )
        endpoint = voter.endpoints[0]
        if (new := moved.pop(voter.voter_id, None)) is not None:
            endpoint = Endpoint(name=choices.listener or endpoint.name, host=new.host, port=new.port)
        voters.append(Voter(id=voter.voter_id, directory_id=voter.voter_directory_id, endpoint=endpoint))
    if moved:
        raise DirectoryError(
            f"{min(moved)} is no voter", hint="Name voters of the log; `kraft recover plan` lists them."
        )
    return tuple(voters)


def _listener(plan: Plan, choices: Choices) -> str:
    if choices.listener is not None:
        return choices.listener
    voters = plan.seed.quorum.voters
    for voter in () if voters is None else voters.record.voters:
        if voter.endpoints:
            return voter.endpoints[0].name
    for controller in plan.image.controllers.by_id.values():
        if controller.endpoints:
            return controller.endpoints[0].name
    return DEFAULT_LISTENER


def _voters_record(voters: Sequence[Voter]) -> VotersRecord:
    return VotersRecord(
        voters=tuple(
            VotersRecordVoter(
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                endpoints=() if voter.endpoint is None else (voter.endpoint,),
                kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
            )
            for voter in voters
        )
    )


# --------------------------------------------------------------------------------------------------------------- files


def _log_files(recovery: Recovery, time_ms: int) -> tuple[FileToWrite, ...]:
    """The seed's segments up to the new end, the appended batches, its snapshots and its epochs."""
    plan, seed = recovery.plan, recovery.plan.seed
    files: list[FileToWrite] = []
    kept = [batch for batch in seed.batches if batch.base_offset < plan.append_at]
    appended, epochs = _appended(recovery, time_ms), seed.epochs.truncate_end(plan.append_at)
    if appended:
        epochs = epochs.assign(plan.recovery_epoch, plan.append_at)
    bases = sorted({batch.base: batch for batch in kept}.items())
    for index, (base, last) in enumerate(bases):
        is_last = index + 1 == len(bases)
        files.append(
            CopiedFile(
                path=f"{PARTITION_DIRECTORY}/{file_name(base)}",
                source=seed.segment_path(last),
                size=last.position + last.size_bytes,
                appended=appended if is_last else b"",
            )
        )
    files += [
        CopiedFile(
            path=f"{PARTITION_DIRECTORY}/{snapshot_name(one)}",
            source=f"{seed.partition}/{snapshot_name(one)}",
            read_only=True,
        )
        for one in seed.snapshots
        if one.offset <= plan.append_at
    ]
    files.append(NewFile(path=f"{PARTITION_DIRECTORY}/{EPOCHS_FILE}", content=format_epochs(epochs)))
    return tuple(files)


def _appended(recovery: Recovery, time_ms: int) -> bytes:
    plan = recovery.plan
    offset, epoch = plan.append_at, plan.recovery_epoch
    data = b""
    if recovery.control:
        encoded = [encode_control(record) for record in recovery.control]
        data += build_control_batch(offset, epoch, time_ms, [(kind, value) for kind, _, value in encoded])
        offset += len(encoded)
    for start in range(0, len(recovery.records), RECORDS_PER_BATCH):
        values = [
            encode_record(record, version) for record, version in recovery.records[start : start + RECORDS_PER_BATCH]
        ]
        data += build_batch(offset, epoch, time_ms, values)
        offset += len(values)
    assert offset == recovery.log_end, (offset, recovery.log_end)
    return data


def _image_files(recovery: Recovery, time_ms: int) -> tuple[FileToWrite, ...]:
    """One snapshot and no segment: Kafka continues the log where the snapshot ends."""
    voters = next((record for record in recovery.control if isinstance(record, VotersRecord)), None)
    return (
        NewSnapshot(
            directory=PARTITION_DIRECTORY,
            snapshot=OffsetAndEpoch(epoch=recovery.plan.recovery_epoch, offset=recovery.log_end),
            image=recovery.image,
            kraft_version=recovery.kraft_version,
            voters=voters,
            timestamp_ms=time_ms,
        ),
    )


def _own_files(recovery: Recovery, voter: Voter, now_ms: int) -> tuple[FileToWrite, ...]:
    """The small files, meta.properties last: a directory with this file counts as formatted."""
    plan = recovery.plan
    is_dynamic = recovery.kraft_version > 0
    state = StoredElection(
        leader_epoch=plan.recovery_epoch,
        leader_id=NO_NODE,
        voted_id=NO_NODE,
        current_voters=() if is_dynamic else tuple(one.id for one in recovery.voters),
        data_version=int(is_dynamic),
    )
    meta = MetaProperties(cluster_id=plan.inventory.cluster_id, node_id=voter.id, directory_id=voter.directory_id)
    files: list[FileToWrite] = [
        NewFile(path=f"{PARTITION_DIRECTORY}/{QUORUM_STATE}", content=format_quorum_state(state)),
        NewFile(path=f"{PARTITION_DIRECTORY}/{PARTITION_METADATA}", content=_METADATA_TOPIC_TEXT),
    ]
    if plan.best.has_bootstrap:
        files.append(CopiedFile(path=BOOTSTRAP_CHECKPOINT, source=f"{plan.best.path}/{BOOTSTRAP_CHECKPOINT}"))
    files.append(NewFile(path=META_PROPERTIES, content=format_meta_properties(meta, now_ms)))
    return tuple(files)


def describe(recovery: Recovery) -> Description:
    """The facts of a recovery, as `recovery.json` beside the new directories has them for `verify`."""
    plan = recovery.plan
    counts: dict[str, int] = {}
    for record in (*recovery.control, *(record for record, _ in recovery.records)):
        counts[type(record).__name__] = counts.get(type(record).__name__, 0) + 1
    return Description(
        cluster_id=plan.inventory.cluster_id,
        seed=plan.best.path,
        epoch=plan.recovery_epoch,
        append_at=plan.append_at,
        log_end=recovery.log_end,
        kraft_version=recovery.kraft_version,
        voters=tuple(
            DescribedVoter(
                id=voter.id,
                directory_id=str(voter.directory_id),
                endpoint=None
                if voter.endpoint is None
                else f"{voter.endpoint.name}://{voter.endpoint.host}:{voter.endpoint.port}",
                dir=f"node-{voter.id}",
            )
            for voter in recovery.voters
        ),
        appended=counts,
        partition=METADATA_PARTITION,
        topics=len(recovery.image.topics),
        accepted_strays=tuple(
            AcceptedStray(broker=one.broker, dir=one.files.name, why=one.why, log_end=one.files.log_end)
            for one in recovery.strays
        ),
        brokers_gone=tuple(plan.options.gone),
        never_start_again=tuple(one.path for one in plan.inventory.dirs if one.role == CONTROLLER),
    )


def recovery_json(recovery: Recovery) -> dict[str, Any]:
    """The description of a recovery as JSON."""
    facts: dict[str, Any] = to_builtins(describe(recovery))
    return facts
