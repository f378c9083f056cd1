"""Archives: the complete metadata history of a cluster, beyond the week that its directories keep."""

from kraft.archive.archive import Added, Archive, open_archive
from kraft.archive.feed import Feed
from kraft.archive.manifest import ArchiveError, GapFacts, Manifest, read_manifest
from kraft.archive.source import Source, open_source
from kraft.archive.verification import Verified, verify_archive

__all__ = [
    "Added",
    "Archive",
    "ArchiveError",
    "Feed",
    "GapFacts",
    "Manifest",
    "Source",
    "Verified",
    "open_archive",
    "open_source",
    "read_manifest",
    "verify_archive",
]
