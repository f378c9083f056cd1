"""The checks: functions from facts to findings."""
