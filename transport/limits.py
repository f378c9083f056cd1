"""The bounds of the connections of one transport: their number, their memory, and what one turn delivers.

`kraft.limits` states how they relate to each other and to the turns of a node.
"""

from __future__ import annotations

from typing import Final

HELD_AT_ONCE: Final = 256
"""The connections that are held before they are closed, as their addresses make too many; others are closed at once."""
MAX_CONNECTIONS: Final = 10_000
"""The default number of connections of peers."""
RESERVED_CONNECTIONS: Final = 64
"""How many of these are reserved for voters and for this machine itself; a sixteenth of a smaller total."""
UNSECURED_CONNECTIONS: Final = 256
"""The most connections of unknown peers that have not finished their handshake; voters have as many of their own.

A further one takes the place of one of the address that has the most of them: silent connections keep nobody out.
"""
UNSECURED_PER_ADDRESS: Final = 32
"""The most of these connections from one address; a further one takes the place of one of that address. Addresses with
a reserve have no such limit.
"""
HANDSHAKE_BYTES: Final = 128 * 1024
"""The most bytes that a peer may send before the handshake is done: a few chains of certificates."""
HANDSHAKE_STEPS_PER_TURN: Final = 16
"""How many steps of handshakes follow each other before other tasks run. A step takes up to two milliseconds."""
BUDGET_BYTES: Final = 64 << 20
"""The default bound of received bytes, and of unsent bytes."""
SMALL_BYTES: Final = 64 * 1024
"""A connection that holds no more than this reads on while memory is short for its address alone."""
COUNTED_BYTES: Final = 4096
"""A smaller change of a connection's memory is not counted."""
UNANSWERED_PER_CONNECTION: Final = 1024
"""The channel stops reading at this many unanswered requests, until half of them are answered."""
UNSENT_PER_CONNECTION: Final = 1 << 20
"""The channel stops reading from a peer that leaves this many bytes unread, until the peer has caught up."""
STALLED_SECONDS: Final = 30.0
"""A peer that leaves answers unread, or a request unfinished, for this time is disconnected."""
STEADY_BYTES: Final = 64 * 1024
"""The bytes that a peer has to read or send in `STALLED_SECONDS`, if as many are pending."""
PLACE_SECONDS: Final = 10.0
"""For how long one unfinished request of an address keeps the others of that address from growing."""
TURN_REQUESTS: Final = 500
"""How many requests are delivered before the user has processed them; Kafka's default of `queued.max.requests`."""
QUEUED_REQUESTS: Final = 32
"""How many queued requests are delivered before other tasks of the node and new requests run."""
QUANTUM: Final = 16
"""How many requests of one connection are delivered before the next connection's turn."""
MEMBERS_AT_ONCE: Final = 4
"""How many connections deliver before the user processes the deliveries."""
ANSWER_TURN_BYTES: Final = 512 * 1024
"""The bytes of answers in a turn after which no further answer begins: about a millisecond of work."""
BULK_BYTES: Final = 512 * 1024
"""The expected bytes of bulk answers after which no further bulk request is delivered until those answers are made."""
VOTERS_BULK_BYTES: Final = 2 << 20
"""The same for voters, all of which fetch from their leader."""
ANSWERS_IN_ROOM: Final = 4
"""The share of the free memory that one answer may take while memory is short."""
READ_BYTES: Final = 64 * 1024
"""Bytes per read, which bounds the small requests that one read of a connection brings."""
MOST_READ_BYTES: Final = 1024 * 1024
"""Bytes per read while a large frame is incomplete."""
SEAL_BYTES: Final = 1 << 20
"""The most bytes that one call seals: about a millisecond of work."""
