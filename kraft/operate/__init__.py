"""What tools compute about nodes in operation; commands and listeners print it."""
