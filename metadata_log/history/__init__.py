"""The history of a cluster from its metadata log: past states, their intervals and their causes (KIP-631)."""

from metadata_log.history.engine import Options, rows
from metadata_log.history.views import DERIVED_VIEWS, HISTORY_VIEWS, STATE_VIEWS, VIEWS, Column, ColumnType, View

__all__ = ["DERIVED_VIEWS", "HISTORY_VIEWS", "STATE_VIEWS", "VIEWS", "Column", "ColumnType", "Options", "View", "rows"]
