"""Adapters of `kraft.Store` to the interfaces that other programs define: a module for each, and an extra for each."""
