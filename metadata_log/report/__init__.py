"""Self-contained HTML reports of a cluster or a fleet, with plots and tables that need no network."""

from metadata_log.report.diff_page import render_diff
from metadata_log.report.fleet_page import FLEET_VIEWS, render_fleet
from metadata_log.report.history_page import HISTORY_VIEWS, render_history

__all__ = ["FLEET_VIEWS", "HISTORY_VIEWS", "render_diff", "render_fleet", "render_history"]
