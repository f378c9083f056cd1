"""Who asks, what the asker may do, and which error says no: what controllers and brokers share."""
