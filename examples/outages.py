"""The directory of any controller or broker says which partitions had no leader, for how long, and why.

In a checkout:

    $ python3 -m tarfile -e tests/data/clusters.tar.xz corpus
    $ python3 examples/outages.py corpus/failover/nodes/c1
    below-min-isr for 665.9 s, all partitions added up; cause: session-timeout
    leaderless for 174.7 s, all partitions added up; cause: session-timeout
"""

import sys
from collections import Counter

from metadata_log.disk import OsDisk
from metadata_log.history import VIEWS, rows
from metadata_log.reading.timeline import read_timeline

UNAVAILABILITY = VIEWS["unavailability"]


def main(directory: str) -> None:
    lasted: Counter[tuple[str, str]] = Counter()
    for _, row in rows(read_timeline(OsDisk(), directory), {UNAVAILABILITY.name}, cluster="failover"):
        outage = dict(zip(UNAVAILABILITY.names, row, strict=True))
        lasted[outage["kind"], outage["cause"]] += round(outage["seconds"] * 1000)
    for (kind, cause), milliseconds in lasted.most_common(3):
        print(f"{kind} for {milliseconds / 1000:.1f} s, all partitions added up; cause: {cause}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python3 examples/outages.py DIRECTORY")
    main(sys.argv[1])
