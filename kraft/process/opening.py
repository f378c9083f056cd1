"""Opens a process: its directory, its core and its application (Kafka: `KafkaRaftServer.startup`)."""

from __future__ import annotations

from collections.abc import Generator
from random import Random

from kraft.process.options import ProcessOptions
from kraft.process.parts import ApplicationFactory, Opening, kind_of
from kraft.process.process import Process
from kraft.replica.interface.events import Output
from kraft.replica.replica import core_of
from kraft.replica.storage.storage import Storage
from metadata_log.disk import Disk
from metadata_log.serde.codec import finished


def open_process(
    *, options: ProcessOptions, disk: Disk, rng: Random, application: ApplicationFactory, now_ms: int
) -> tuple[Process, list[Output]]:
    """Recover a formatted directory and enter the first state. The caller carries out the outputs.

    Raises `MetadataLogError` where a file or the directory is not as it should be, `OSError` where the disk fails.
    """
    return finished(opening_process(options=options, disk=disk, rng=rng, application=application, now_ms=now_ms))


def opening_process(
    *, options: ProcessOptions, disk: Disk, rng: Random, application: ApplicationFactory, now_ms: int
) -> Generator[None, None, tuple[Process, list[Output]]]:
    """As `open_process`, in steps of some milliseconds. No other code uses the directory between two steps.

    A generator that is closed before its end closes the files and releases the directory.
    """
    storage = yield from Storage.opening(disk, options.replica, rng, now_ms)
    try:
        core = core_of(options.replica, storage, rng)
        hosted = application(Opening(options, storage.cluster_id, storage.bootstrap(), rng))
        storage.check_kind(kind_of(hosted))
        process = Process(options=options, disk=disk, storage=storage, core=core, application=hosted, now_ms=now_ms)
        return process, (yield from process.starting(now_ms))
    except GeneratorExit:
        storage.close()
        raise
    except BaseException:
        storage.abandon()
        raise
