"""What clients and administrators of a run ask for, and how the answers are judged."""
