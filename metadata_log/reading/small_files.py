"""Reads the small files beside segments and snapshots, and indexes, as values for display."""

from __future__ import annotations

from metadata_log.disk import Disk
from metadata_log.log.epochs import parse_epochs
from metadata_log.log.indexes import parse_offset_index, parse_time_index
from metadata_log.log.log_dir import parse_meta_properties, parse_partition_metadata
from metadata_log.log.quorum_state_file import parse_quorum_state
from metadata_log.log.segment import INDEX_SUFFIXES, parse_file_name
from metadata_log.reading.file_kinds import FileKind


def read_index(disk: Disk, path: str, kind: FileKind) -> list[tuple[int, int]]:
    """The entries of an index file.

    Args:
        disk: The disk.
        path: The index file, which has the base offset of its segment in its name.
        kind: The kind of the index.

    Returns:
        Pairs of offset and position in bytes, or of timestamp in ms and offset for a time index.

    Raises:
        OSError: The file is unreadable.
    """
    data, base = disk.read(path), base_offset_of(path)
    return parse_offset_index(data, base) if kind is FileKind.OFFSET_INDEX else parse_time_index(data, base)


def base_offset_of(path: str) -> int:
    """The base offset in the name of an index; 0 for any other name."""
    name = path.rpartition("/")[2].removesuffix(".deleted")
    bases = (parse_file_name(name, suffix) for suffix in INDEX_SUFFIXES)
    return next((base for base in bases if base is not None), 0)


def read_small_file(disk: Disk, path: str, kind: FileKind) -> dict[str, object]:
    """The content of a small file, for display.

    Args:
        disk: The disk.
        path: The file.
        kind: The kind of the file.

    Returns:
        The values by name; the size in bytes alone for a kind without a known content.

    Raises:
        MetadataLogError: The file is damaged.
        OSError: The file is unreadable.
    """
    content = disk.read(path)
    match kind:
        case FileKind.QUORUM_STATE:
            state = parse_quorum_state(content, where=path)
            return {
                "data_version": state.data_version,
                "leader_epoch": state.leader_epoch,
                "leader_id": state.leader_id,
                "voted_id": state.voted_id,
                "voted_directory_id": str(state.voted_directory_id),
                "current_voters": list(state.current_voters),
            }
        case FileKind.META_PROPERTIES:
            meta = parse_meta_properties(content, where=path)
            directory_id = None if meta.directory_id is None else str(meta.directory_id)
            return {"cluster_id": meta.cluster_id, "node_id": meta.node_id, "directory_id": directory_id}
        case FileKind.EPOCHS:
            entries = parse_epochs(content, where=path).entries
            return {"epochs": [{"epoch": entry.epoch, "start_offset": entry.offset} for entry in entries]}
        case FileKind.PARTITION_METADATA:
            return {"topic_id": str(parse_partition_metadata(content, where=path))}
        case _:
            return {"size": len(content)}
