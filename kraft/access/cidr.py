"""Hosts of access rules that are ranges of addresses (Kafka 4.4: `SubnetUtils` and `SubnetUtils6` of commons-net)."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from kraft.limits import ADDRESS_RANGES, CLIENT_ADDRESSES

_IPV4: Final = r"(?a)(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})"
_NUMBER: Final = r"(?a)[+-]?\d{1,9}"
_IPV6_BITS: Final = 128
_UNSPECIFIED: Final = IPv4Address("0.0.0.0")


def parse_range(host: str) -> IPv4Network | IPv6Network:
    """The range of a host with a slash; bits after the prefix are ignored. Raises `ValueError` with Kafka's reason."""
    return _parse_ipv6(host) if ":" in host else _parse_ipv4(host)


def is_in_range(host: str, address: str) -> bool:
    """Whether the host of a rule is a range that holds an address; False for a host that is no range."""
    if "/" not in host:
        return False
    bounds, wanted = _range(host), _address(address)
    if bounds is None or wanted is None:
        return False
    version, first, last = bounds
    return version == wanted.version and first <= int(wanted) <= last


@lru_cache(ADDRESS_RANGES)
def _range(host: str) -> tuple[int, int, int] | None:
    """The version, the first and the last address of a range: small, because all rules of a cluster may have one."""
    try:
        network = parse_range(host)
    except ValueError:
        return None
    return network.version, int(network.network_address), int(network.broadcast_address)


@lru_cache(CLIENT_ADDRESSES)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    """The address of a client. No range holds an address with a zone, nor 0.0.0.0 (`SubnetInfo.isInRange`)."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return None if "%" in text or address == _UNSPECIFIED else address


def _parse_ipv4(host: str) -> IPv4Network:
    words = re.fullmatch(_IPV4, host)
    if words is None:
        raise ValueError(f"Could not parse [{host}]")
    *numbers, prefix = map(int, words.groups())
    for number in numbers:
        if number > 255:
            raise ValueError(f"Value [{number}] not in range [0,255]")
    if prefix > 32:
        raise ValueError(f"Value [{prefix}] not in range [0,32]")
    return IPv4Network((bytes(numbers), prefix), strict=False)


def _parse_ipv6(host: str) -> IPv6Network:
    text, _, prefix = host.partition("/")
    if not re.fullmatch(_NUMBER, prefix):
        raise ValueError(f"Could not parse [{host}] - invalid prefix length")
    if not 0 <= int(prefix) <= _IPV6_BITS:
        raise ValueError(f"Could not parse [{host}] - prefix length must be between 0 and 128")
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        address = IPv6Address(bare)
    except AddressValueError:
        raise ValueError(f"Could not parse [{text}]") from None
    if address.scope_id is not None:
        raise ValueError(f"Could not parse [{text}]")
    if address.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{text}] - not an IPv6 address")
    return IPv6Network((address.packed, int(prefix)), strict=False)
