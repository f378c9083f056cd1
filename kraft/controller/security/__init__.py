"""Decisions on access: ACLs, SCRAM credentials, delegation tokens, and the permission that each API needs."""
