"""The access of controllers and brokers alike: who asks, what the asker may do, and which error says no."""
