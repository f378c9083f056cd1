"""Decisions on brokers: registration, heartbeats, fencing; the description of the cluster."""
