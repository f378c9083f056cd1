"""metadata_log."""
