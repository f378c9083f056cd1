"""The sizes of requests and answers on the wire, without encoding their records (Kafka: `Request.sizeInBytes`,
`FetchResponse.sizeOf`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from kraft.wire import WireRequest
from metadata_log.serde import encode
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.headers import encode_request
from transport.protocol.messages import fetch, produce

if TYPE_CHECKING:
    from transport.protocol.messages import share_fetch

_FLEXIBLE_PRODUCE: Final = 9
_FLEXIBLE_FETCH: Final = 12
"""The first versions in which a length is a number of variable size."""
_BITS: Final = 7
_LENGTH: Final = 4


def request_size(asked: WireRequest[produce.ProduceRequest]) -> int:
    """The bytes of a Produce request with its header, without the length of the frame."""
    message = asked.message
    sizes: list[int] = []
    topics = []
    for topic in message.topic_data:
        sizes += [len(part.records) for part in topic.partition_data if part.records]
        bare = [replace(part, records=b"") if part.records else part for part in topic.partition_data]
        topics.append(replace(topic, partition_data=bare))
    bare_request = replace(message, topic_data=topics)
    frame = encode_request(asked.api_key, asked.version, 0, asked.client_id, bare_request, apis=ALL_APIS)
    return len(frame) + _records(sizes, is_flexible=asked.version >= _FLEXIBLE_PRODUCE)


def answer_size(response: fetch.FetchResponse | share_fetch.ShareFetchResponse, version: int) -> int:
    """The bytes of the answer to a Fetch or a ShareFetch, with the length of its frame, and without its header."""
    sizes: list[int] = []
    topics: list[Any] = []
    for topic in response.responses:
        sizes += [len(part.records) for part in topic.partitions if part.records]
        bare: list[Any] = [replace(part, records=b"") if part.records else part for part in topic.partitions]
        topics.append(replace(topic, partitions=bare))
    body = encode(replace(response, responses=topics), version)
    # Each version of ShareFetch is.
    is_flexible = version >= _FLEXIBLE_FETCH or not isinstance(response, fetch.FetchResponse)
    return _LENGTH + len(body) + _records(sizes, is_flexible=is_flexible)


def _records(sizes: list[int], *, is_flexible: bool) -> int:
    """The bytes of records, and those by which their length is longer than that of no records."""
    return sum(sizes) + sum(((size + 1).bit_length() - 1) // _BITS for size in sizes if is_flexible)
