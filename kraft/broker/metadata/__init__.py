"""What a broker answers from the metadata image alone, and the requests that it forwards to the active controller."""
