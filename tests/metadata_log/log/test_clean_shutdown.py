"""The file of a clean shutdown: it proves the end of one run, in every log directory, and only once."""

from __future__ import annotations

import pytest

from metadata_log.log.clean_shutdown import CLEAN_SHUTDOWN_FILE, take_clean_shutdown, write_clean_shutdown
from metadata_log.memory_disk import MemoryDisk


def disk_with(**contents: bytes | None) -> MemoryDisk:
    """Log directories with these files, durably; none in a directory with None."""
    disk = MemoryDisk()
    for name, content in contents.items():
        disk.mkdir(f"/{name}")
        if content is not None:
            file = disk.open(f"/{name}/{CLEAN_SHUTDOWN_FILE}", create=True)
            file.append(content)
            file.fsync()
            file.close()
        disk.fsync_dir(f"/{name}")
    disk.fsync_dir("/")
    return disk


def test_the_file_survives_a_crash_and_has_the_content_of_kafka() -> None:
    disk = disk_with(a=None)
    write_clean_shutdown(disk, "/a", 17)
    disk.crash()
    assert disk.read(f"/a/{CLEAN_SHUTDOWN_FILE}") == b'{"version":0,"brokerEpoch":17}'
    assert take_clean_shutdown(disk, ["/a"]) == 17


SEVEN, EIGHT = b'{"version":0,"brokerEpoch":7}', b'{"version":0,"brokerEpoch":8}'


@pytest.mark.parametrize(
    ("first", "second", "epoch"),
    [
        (SEVEN, SEVEN, 7),
        (SEVEN, EIGHT, -1),
        (None, SEVEN, -1),
        (SEVEN, None, -1),
        (None, None, -1),
        (b"", b"", -1),
        (b"", SEVEN, -1),
        (b'{"version":0', b'{"version":0', -1),
        (b'{"version":0,"brokerEpoch":"7"}', b'{"version":0,"brokerEpoch":"7"}', -1),
    ],
)
def test_the_files_of_all_directories_must_agree(first: bytes | None, second: bytes | None, epoch: int) -> None:
    """Brokers before 3.8 leave an empty file."""
    disk = disk_with(a=first, b=second)
    assert take_clean_shutdown(disk, ["/a", "/b"]) == epoch
    disk.crash()
    assert [disk.list(path) for path in ("/a", "/b")] == [[], []], "they prove nothing about the run that begins"
    assert take_clean_shutdown(disk, ["/a", "/b"]) == -1


def test_no_directory_proves_no_clean_shutdown() -> None:
    assert take_clean_shutdown(MemoryDisk(), []) == -1
