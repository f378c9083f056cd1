"""The bytes of any message of Kafka, from a packet capture or a bug report, become fields with names.

In a checkout:

    $ python3 examples/decode_request.py
    {"clusterId": "abc", "voterId": 2, "topics": []}
    VoteRequest version 2: the bytes end inside an int32 of 4 bytes: 0 are left (voterId, byte 1)
"""

import json

from metadata_log.errors import DecodeError
from metadata_log.serde import decode, to_json
from transport.protocol.messages import VoteRequest


def main() -> None:
    for text in ("0461626300000002 01 00", "00"):
        try:
            print(json.dumps(to_json(decode(VoteRequest, 2, bytes.fromhex(text)), 2)))
        except DecodeError as error:
            print(error)


if __name__ == "__main__":
    main()
