"""Addresses of brokers, read in one way for all clients. Pure.

librdkafka cuts a scheme and a path off, and Kafka's Java client takes any text before the last colon for a host: a list
that is checked in one way and used in another can lead to a host that the check has never seen. What was checked is
therefore written anew for the clients.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

DEFAULT_PORT = 9092
_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62}))*")
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:]+))(?::(?P<port>[0-9]{1,5}))?")
_SCHEME = re.compile(r"(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://", re.IGNORECASE)
_MOST = 65_535

Address = tuple[str, int]
"""A host in small letters (IPv6 without brackets), and a port."""


def addresses(text: str) -> tuple[Address, ...] | None:
    """The brokers of a list such as `kafka-1:9092,[::1]:9093`; None where a part is anything but host and port.

    Args:
        text: the list. Blanks round a comma don't count; a missing port is 9092.
    """
    found = [_address(one.strip()) for one in text.split(",") if one.strip()]
    return tuple(one for one in found if one is not None) if found and None not in found else None


def own_hosts(text: str) -> frozenset[str]:
    """The hosts of a connection's own list, which may have schemes, as librdkafka takes them."""
    plain = (_SCHEME.sub("", one.strip(), count=1) for one in text.split(","))
    return frozenset(found[0] for one in plain if (found := _address(one)) is not None)


def in_words(brokers: Sequence[Address]) -> str:
    """The list as all clients read it."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in brokers)


def _address(text: str) -> Address | None:
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return None
    port = int(found["port"] or DEFAULT_PORT)
    host = _host(found["six"], found["name"])
    return (host, port) if host is not None and 0 < port <= _MOST else None


def _host(six: str | None, name: str | None) -> str | None:
    if name is not None:
        return name.lower() if _NAME.fullmatch(name) else None
    try:
        return str(ipaddress.IPv6Address(six))
    except ValueError:
        return None
