"""One GET of a metrics listener, within bounds of time and size."""

from __future__ import annotations

import os
from typing import Final

import h11
import trio

from metadata_log.errors import MetadataLogError
from transport.interface import Endpoint

SCRAPE_SECONDS: Final = 2.0
MAX_BYTES: Final = 16 << 20
_READ_BYTES: Final = 1 << 16


class ScrapeFailed(MetadataLogError):
    """A metrics listener gave no answer that can be read. The message says why."""


async def scrape(endpoint: Endpoint) -> str:
    """The text of `/metrics`; raises `ScrapeFailed`, after `SCRAPE_SECONDS` at the latest."""
    with trio.move_on_after(SCRAPE_SECONDS):
        try:
            return await _get(endpoint)
        except OSError as failed:
            raise ScrapeFailed(_cause(failed)) from failed
        except (h11.RemoteProtocolError, UnicodeDecodeError) as failed:
            raise ScrapeFailed(f"the answer is not HTTP with text: {failed}") from failed
    raise ScrapeFailed(f"no answer within {SCRAPE_SECONDS:g} s")


async def _get(endpoint: Endpoint) -> str:
    stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
    async with stream:
        http = h11.Connection(h11.CLIENT)
        request = h11.Request(
            method="GET", target="/metrics", headers=[("Host", str(endpoint)), ("Connection", "close")]
        )
        await stream.send_all((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
        body = bytearray()
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await stream.receive_some(_READ_BYTES))
            elif isinstance(event, h11.Response) and event.status_code != 200:
                raise ScrapeFailed(f"the answer is HTTP {event.status_code}")
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BYTES:
                    raise ScrapeFailed(f"the answer has more than {MAX_BYTES >> 20} MiB")
            elif isinstance(event, h11.EndOfMessage):
                return body.decode()
            elif isinstance(event, h11.ConnectionClosed):
                raise ScrapeFailed("the connection was closed before the end of the answer")


def _cause(failed: BaseException) -> str:
    """The words of the system: Trio wraps the failures of all addresses of a name."""
    match failed.__cause__:
        case OSError() as cause:
            return _cause(cause)
        case BaseExceptionGroup(exceptions=(first, *_)):
            return _cause(first)
    return os.strerror(failed.errno) if isinstance(failed, OSError) and failed.errno else str(failed)
