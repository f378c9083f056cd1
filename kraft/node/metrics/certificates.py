"""The certificates of a node with TLS, as its metrics show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft.metrics.view import CertificateEnd, Certificates
from kraft.security.contexts import TlsFacts

if TYPE_CHECKING:
    from kraft.security.certificates import Certificate

OUTGOING: Final = "outgoing"
"""The label `listener` of the certificate that a node shows to controllers; `outgoing-brokers` that to brokers."""


def certificates_of(facts: TlsFacts) -> Certificates:
    """The ends of all certificates of a node."""
    loaded = facts.loaded
    own = [_end(one.certificate, name) for name, one in sorted(loaded.listeners.items())]
    own += [_end(one.certificate, f"{OUTGOING}-{kind}" if kind else OUTGOING) for kind, one in loaded.outgoing.items()]
    return Certificates(tuple(own), tuple(map(_end, loaded.authorities)), facts.replaced, facts.kept)


def _end(certificate: Certificate, listener: str = "") -> CertificateEnd:
    return CertificateEnd(certificate.subject, certificate.serial, certificate.ends.timestamp(), listener)
