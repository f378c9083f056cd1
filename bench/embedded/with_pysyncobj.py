"""A replicated dictionary on PySyncObj: what a user writes."""

from __future__ import annotations

import sys

from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.batteries import ReplDict


def main(address: str, others: list[str], journal: str) -> None:
    data = ReplDict()
    conf = SyncObjConf(journalFile=journal, fullDumpFile=f"{journal}.dump")
    node = SyncObj(address, others, consumers=[data], conf=conf)
    node.waitReady()
    data.set("greeting", b"hello", sync=True)
    print("put", flush=True)
    print("got", data.get("greeting").decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2].split(","), sys.argv[3])
