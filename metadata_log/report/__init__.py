"""Self-contained HTML reports of a cluster or a fleet, with plots and tables that need no network."""

from metadata_log.report.pages import FLEET_VIEWS, HISTORY_VIEWS, render_diff, render_fleet, render_history

__all__ = ["FLEET_VIEWS", "HISTORY_VIEWS", "render_diff", "render_fleet", "render_history"]
