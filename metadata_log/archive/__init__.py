"""Archives: the complete metadata history of a cluster, beyond the week that its directories keep."""

from metadata_log.archive.archive import Added, Archive, open_archive
from metadata_log.archive.feed import Feed
from metadata_log.archive.manifest import ArchiveError, GapFacts, Manifest, read_manifest
from metadata_log.archive.source import Source, open_source
from metadata_log.archive.verification import Verified, verify_archive

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
