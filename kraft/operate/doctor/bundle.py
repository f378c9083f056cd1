"""Bundles: what the checks need from one host, in one archive without secrets.

A bundle holds `bundle.json`, the facts about nodes. If the metadata was asked for, the bundle also has a snapshot of
the metadata for each node. Values of secret settings, credentials and tokens never enter a bundle. Records of users are
not read at all.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, Final, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kraft.config.errors import ConfigError
from kraft.config.properties import Setting
from kraft.operate.doctor.facts.log_facts import ImageFacts, Moment
from kraft.operate.doctor.facts.node import Node
from kraft.operate.doctor.facts.settings import Settings, is_secret
from kraft.operate.doctor.read_log import read_image_facts
from metadata_log.disk import OsDisk
from metadata_log.image import MetadataImage
from metadata_log.image.configs import ConfigsImage
from metadata_log.image.persistent_map import Map, in_key_order, with_changes
from metadata_log.image.records import records
from metadata_log.image.scram import ScramCredential, ScramImage
from metadata_log.image.tokens import TokensImage
from metadata_log.log.snapshot import encode_snapshot, snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.frame import encode_record
from metadata_log.records.redact import REDACTED, is_secret_config
from metadata_log.types import Uuid

FORMAT: Final = 1
MANIFEST: Final = "bundle.json"
MOST_BYTES: Final = 1 << 30
"""The limit of the metadata of one node in a bundle."""
MOST_MANIFEST_BYTES: Final = 64 << 20
MOST_TOTAL_BYTES: Final = 8 << 30
"""The limit of an archive after decompression: also what is not read has to be skipped."""
_SKIPPED_AT_ONCE: Final = 1 << 20


class CollectedImage(Struct, frozen=True, kw_only=True):
    """The metadata of one node in a bundle: the name of the snapshot, and what a snapshot does not hold."""

    node: int
    """The place of the node in the list of nodes."""
    file: str
    end_ms: int
    open_transaction: Moment | None = None
    fenced_since: dict[int, Moment] = {}
    changed: tuple[tuple[Uuid, int, Moment], ...] = ()
    problem: str = ""


class Manifest(Struct, frozen=True, kw_only=True):
    """The content of `bundle.json`. `collected_ms` is the time of the host in milliseconds since 1970."""

    format: int
    host: str
    collected_ms: int
    nodes: tuple[Node, ...]
    images: tuple[CollectedImage, ...] = ()


class Bundle(Struct, frozen=True, kw_only=True):
    """A bundle that was read: its nodes, and the metadata of some of them."""

    manifest: Manifest
    images: dict[int, ImageFacts]


# ----------------------------------------------------------------------------------------------------------- writing


def redacted(settings: Settings) -> Settings:
    """The settings without the values of secrets. A user name in a JAAS text stays, because a check needs it."""
    values = {
        key: Setting(_without_secret(key, setting.value), setting.where) if is_secret(key, setting.value) else setting
        for key, setting in settings.values.items()
    }
    return Settings(source=settings.source, values=values)


def _without_secret(key: str, value: str) -> str:
    if not key.lower().endswith("jaas.config"):
        return REDACTED
    start = value.find("username=")
    if start < 0:
        return REDACTED
    rest = value[start + len("username=") :]
    quote = rest[:1] if rest[:1] in {'"', "'"} else ""
    user = rest[1:].partition(quote)[0] if quote else rest.split()[0].rstrip(";") if rest.split() else ""
    return f'username="{user}" {REDACTED}'


def without_secrets(image: MetadataImage) -> MetadataImage:
    """The metadata with empty credentials, without tokens, and with secret configuration values replaced."""
    configs = image.configs.by_resource
    for resource, values in in_key_order(image.configs.by_resource):
        secret = {key: REDACTED for key, value in values.items() if is_secret_config(resource[0], key, value)}
        if secret:
            configs = with_changes(configs, {resource: with_changes(values, secret)})
    users = {
        user: Map({mechanism: ScramCredential(b"", b"", b"", one.iterations) for mechanism, one in credentials.items()})
        for user, credentials in in_key_order(image.scram.by_user)
    }
    return replace(
        image, configs=ConfigsImage(configs), scram=ScramImage(Map(users)), tokens=TokensImage(), transaction=None
    )


def write_bundle(
    path: str,
    nodes: Sequence[Node],
    *,
    host: str,
    now_ms: int,
    with_records: bool,
    advance: Callable[[int], None] = lambda batches: None,
) -> Manifest:
    """Write a bundle of some nodes of this host, readable by its owner only, and return its manifest. With records, it
    has the metadata of each node without secrets. `advance` hears of numbers of batches replayed.
    """
    images: list[tuple[CollectedImage, bytes]] = []
    if with_records:
        for place, node in enumerate(nodes):
            if node.log is not None and not node.log.is_empty:
                facts = read_image_facts(OsDisk(), node.log.path, advance)
                images.append(_collected(place, facts))
    manifest = Manifest(
        format=FORMAT,
        host=host,
        collected_ms=now_ms,
        nodes=tuple(
            node if node.settings is None else replace(node, settings=redacted(node.settings)) for node in nodes
        ),
        images=tuple(image for image, _ in images),
    )
    members = [(MANIFEST, msgspec.json.encode(manifest, enc_hook=_encode))]
    members += [(image.file, content) for image, content in images]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
            for name, content in members:
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.mode = len(content), now_ms // 1000, 0o600
                tar.addfile(member, io.BytesIO(content))
    except BaseException:
        os.unlink(path)
        raise
    return manifest


def _collected(place: int, found: ImageFacts) -> tuple[CollectedImage, bytes]:
    image = without_secrets(found.image)
    end = image.end
    values = [encode_record(record, version) for record, version in records(image)]
    content = encode_snapshot(
        values, epoch=end.epoch, timestamp_ms=max(found.end_ms, 0), last_contained_log_timestamp=max(found.end_ms, 0)
    )
    collected = CollectedImage(
        node=place,
        file=f"{place}/{snapshot_name(end)}",
        end_ms=found.end_ms,
        open_transaction=found.open_transaction,
        fenced_since=found.fenced_since,
        changed=tuple((topic_id, number, moment) for (topic_id, number), moment in sorted(found.changed.items())),
        problem=found.problem,
    )
    return collected, content


def _encode(value: Any) -> Any:
    if isinstance(value, Uuid):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no fact")


def _decode(kind: type, value: Any) -> Any:
    if kind is Uuid and isinstance(value, str):
        return Uuid.parse(value)
    raise TypeError(f"{kind.__name__} is no fact")


# ----------------------------------------------------------------------------------------------------------- reading


def is_bundle(path: str) -> bool:
    """Whether a file is a tar archive. Raises `OSError`."""
    if not os.path.isfile(path):
        return False
    try:
        with _opened(path) as file:
            tarfile.TarInfo.frombuf(file.read(tarfile.BLOCKSIZE), tarfile.ENCODING, "surrogateescape")
    except _UNREADABLE:
        return False
    return True


def read_bundle(path: str) -> Bundle:
    """Read a bundle; nothing is unpacked to the disk. `ConfigError` if the file is none, or one of another format."""
    try:
        content = _members(path, {MANIFEST: MOST_MANIFEST_BYTES})
        manifest = msgspec.json.decode(_member(content, MANIFEST, path), type=Manifest, dec_hook=_decode)
        if manifest.format != FORMAT:
            raise ConfigError(
                f"the bundle has format {manifest.format}, and {FORMAT} is known",
                where=path,
                hint="Read the bundle with the version of kraft that collected it.",
            )
        content = _members(path, {one.file: MOST_BYTES for one in manifest.images})
        images = {one.node: _image(one, _member(content, one.file, path), path) for one in manifest.images}
    except (*_UNREADABLE, msgspec.MsgspecError, ValueError) as bad:
        raise ConfigError(
            f"this is no bundle: {bad}", where=path, hint="`kraft doctor collect --into TAR` makes one."
        ) from bad
    return Bundle(manifest=manifest, images=images)


_UNREADABLE: Final = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error)
_GZIP: Final = b"\x1f\x8b"


def _opened(path: str) -> BinaryIO:
    """The archive, or what was compressed."""
    file = open(path, "rb")  # noqa: SIM115 - the caller closes it
    is_compressed = file.read(len(_GZIP)) == _GZIP
    file.seek(0)
    return cast(BinaryIO, gzip.GzipFile(fileobj=file)) if is_compressed else file


def _members(path: str, wanted: Mapping[str, int]) -> dict[str, bytes]:
    """The content of the wanted files of an archive, each of at most so many bytes.

    `tarfile` reads the headers of extended formats whole, whatever size they claim. No name of a bundle needs one, so
    they are skipped, as everything else that is not wanted.
    """
    members: dict[str, bytes] = {}
    left = MOST_TOTAL_BYTES
    with _opened(path) as file:
        while len(members) < len(wanted) and (header := file.read(tarfile.BLOCKSIZE)).strip(b"\0"):
            member = tarfile.TarInfo.frombuf(header, tarfile.ENCODING, "surrogateescape")
            padded = -(-max(member.size, 0) // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
            left -= padded + tarfile.BLOCKSIZE
            if left < 0 or member.size < 0:
                raise tarfile.ReadError(f"the archive is larger than {MOST_TOTAL_BYTES >> 30} GiB")
            if member.name in wanted and member.isreg():
                if member.size > wanted[member.name]:
                    raise tarfile.ReadError(f"{member.name} is larger than {wanted[member.name] >> 20} MiB")
                data = file.read(padded)
                if len(data) < member.size:
                    raise EOFError("the archive ends early")
                members[member.name] = data[: member.size]
                continue
            while padded > 0 and (skipped := file.read(min(padded, _SKIPPED_AT_ONCE))):
                padded -= len(skipped)
    return members


def _member(found: Mapping[str, bytes], name: str, path: str) -> bytes:
    content = found.get(name)
    if content is None:
        raise ConfigError(
            f"the archive has no {name}", where=path, hint="`kraft doctor collect --into TAR` makes a bundle."
        )
    return content


def _image(collected: CollectedImage, content: bytes, path: str) -> ImageFacts:
    """The metadata of a snapshot in a bundle."""
    disk = MemoryDisk()
    directory, _, _ = collected.file.rpartition("/")
    disk.mkdir(directory)
    file = disk.open(collected.file, create=True)
    file.append(content)
    file.close()
    facts = read_image_facts(disk, directory)
    return replace(
        facts,
        where=f"{path}:{collected.file}",
        end_ms=collected.end_ms,
        problem=collected.problem or facts.problem,
        open_transaction=collected.open_transaction,
        fenced_since=collected.fenced_since,
        changed={(topic_id, number): moment for topic_id, number, moment in collected.changed},
    )
