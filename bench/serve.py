"""Brokers on loopback to try programs with, until a signal: ours, or Apache Kafka's, behind one controller of ours.

    python bench/serve.py [--make ours|kafka] [--brokers 3] [--set NAME=VALUE ...] [--heap 512m] [--dir DIR]

The first line printed is what clients take as `bootstrap.servers`. Topics are made as clients name them, and internal
topics are small, so that a suite does not wait for fifty partitions. The logs of all processes are in the directory.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from data_brokers.cluster import OURS, DataCluster

SESSION_SECONDS: Final = 9.0


def small_topics(brokers: int) -> tuple[str, ...]:
    """Settings under which internal topics have a replica on each of up to three brokers, and few partitions."""
    replicas = min(brokers, 3)
    return (
        "auto.create.topics.enable=true",
        "offsets.topic.num.partitions=5",
        f"offsets.topic.replication.factor={replicas}",
        "transaction.state.log.num.partitions=5",
        f"transaction.state.log.replication.factor={replicas}",
        f"transaction.state.log.min.isr={min(replicas, 2)}",
        "group.initial.rebalance.delay.ms=0",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", choices=(OURS, "kafka"), default=OURS)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of every broker")
    parser.add_argument("--heap", default="512m", help="the largest heap of each JVM")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the brokers keep files")
    options = parser.parse_args()
    signals = {signal.SIGTERM, signal.SIGINT}
    with tempfile.TemporaryDirectory(prefix="bench-serve-", dir=options.dir) as scratch, ExitStack() as stack:
        settings = (*small_topics(options.brokers), *options.set)
        root = Path(scratch) / options.make
        cluster = DataCluster(
            options.make, root, options.brokers, options.heap, SESSION_SECONDS, stack, settings=settings
        )
        print(cluster.bootstrap, flush=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        signal.sigwait(signals)


if __name__ == "__main__":
    main()
