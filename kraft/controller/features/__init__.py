"""Decisions on feature levels, and the registration of controllers, which says what they support."""
