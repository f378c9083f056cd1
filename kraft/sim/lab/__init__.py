"""A run that somebody watches, moment by moment, and into which they inject faults: what the page of the lab runs in a
browser, and what links and saved schedules share with `kraft sim`.
"""
