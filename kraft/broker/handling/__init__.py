"""What every room needs that answers requests: steps, waiting, rights, settings."""
