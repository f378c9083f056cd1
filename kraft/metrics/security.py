"""The readings of authentications and certificates (Kafka: `Selector.SelectorMetrics`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft.metrics import kafka, own_names
from kraft.metrics.names import Reading
from kraft.metrics.view import NodeView

NETWORK_PROCESSOR: Final = ("networkProcessor", "0")


def authentication_readings(view: NodeView) -> Iterator[Reading]:
    """The authentications of peers: Kafka's sums by listener, and each outcome.

    The first listener of a node has its sums from the start on, even without TLS and logins.
    """
    good = {view.listener: 0}
    bad = dict(good)
    for one in view.counted.authentications:
        sums = good if one.is_success else bad
        sums[one.listener] = sums.get(one.listener, 0) + one.count
        labels = (("listener", one.listener), ("mechanism", one.mechanism), ("result", one.result))
        yield Reading(own_names.AUTHENTICATIONS, one.count, labels)
    for listener in sorted(good.keys() | bad.keys()):
        labels_of_kafka = (("listener", listener), NETWORK_PROCESSOR)
        yield Reading(kafka.SOCKET_SUCCEEDED, good.get(listener, 0), labels_of_kafka)
        yield Reading(kafka.SOCKET_REFUSED, bad.get(listener, 0), labels_of_kafka)


def certificate_readings(view: NodeView) -> Iterator[Reading]:
    """The ends of the certificates in use, and of the trusted authorities; nothing for a node without TLS."""
    certificates = view.certificates
    if certificates is None:
        return
    for one in certificates.own:
        labels = (("listener", one.listener), ("subject", one.subject), ("serial", one.serial))
        yield Reading(own_names.CERTIFICATE_END, one.ends_s, labels)
    for one in certificates.authorities:
        yield Reading(own_names.AUTHORITY_END, one.ends_s, (("subject", one.subject), ("serial", one.serial)))
    for result, count in (("replaced", certificates.replaced), ("kept", certificates.kept)):
        yield Reading(own_names.STORE_RELOADS, count, (("result", result),))
