"""Parses the first voters of a dynamic quorum for `kraft format` (Kafka: `DynamicVoters`, KIP-853)."""

from __future__ import annotations

import re
from random import Random
from typing import Final

from kraft.config import FormatConfig, UsageError, parse_host_port, split_list
from metadata_log.records.control import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter
from metadata_log.types import Uuid, random_uuid

_VOTER: Final = re.compile(r"(\d{1,10})@(.+):([A-Za-z0-9_-]{22})")
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::", "*")
_LISTED: Final = "--initial-controllers"


def parse_initial_voters(text: str, listener: str) -> VotersRecord:
    """Parse `id@host:port:directory-id,…`; raises `UsageError`."""
    voters = [_parse(entry, listener) for entry in split_list(text)]
    if not voters:
        raise _bad("no voter is named")
    for what, found in (
        ("id", [voter.voter_id for voter in voters]),
        ("directory id", [voter.voter_directory_id for voter in voters]),
    ):
        if len(set(found)) != len(found):
            raise _bad(f"a voter {what} appears twice")
    return VotersRecord(voters=tuple(sorted(voters, key=lambda voter: voter.voter_id)))


def only_voter(config: FormatConfig, rng: Random) -> VotersRecord:
    """The node itself, with a new directory id; raises `UsageError` if it cannot be a voter."""
    listener = config.controller_listener
    if not config.is_controller:
        raise UsageError(
            "only a controller can be the first voter", where="--standalone", hint="Add controller to process.roles."
        )
    if listener.host in _ANY_ADDRESS or not listener.port:
        raise UsageError(
            f"other nodes could not reach the voter at {listener}",
            where="--standalone",
            hint=f"Add {listener.name}://HOST:PORT to advertised.listeners.",
        )
    voter = _voter(config.node_id, listener.name, listener.host, listener.port, random_uuid(rng))
    return VotersRecord(voters=(voter,))


def _parse(text: str, listener: str) -> VotersRecordVoter:
    match = _VOTER.fullmatch(text)
    if match is None:
        raise _bad(f"{text!r} is not id@host:port:directory-id")
    try:
        host, port = parse_host_port(match[2])
        directory_id = Uuid.parse(match[3])
    except ValueError as bad:
        raise _bad(str(bad)) from bad
    if directory_id.is_reserved:
        raise _bad(f"{directory_id} is reserved and can be no directory's id")
    return _voter(int(match[1]), listener, host, port, directory_id)


def _voter(node_id: int, listener: str, host: str, port: int, directory_id: Uuid) -> VotersRecordVoter:
    return VotersRecordVoter(
        voter_id=node_id,
        voter_directory_id=directory_id,
        endpoints=(Endpoint(name=listener, host=host, port=port),),
        kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )


def _bad(what: str) -> UsageError:
    return UsageError(
        what, where=_LISTED, hint="For example 1@host1:9093:pg3mKBxfeN4_YYsakj8Duw; make ids with `kraft random-uuid`."
    )
