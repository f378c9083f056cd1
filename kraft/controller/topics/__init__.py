"""Decisions on topics and their partitions: placement, leaders, in-sync replicas, reassignments, directories."""
