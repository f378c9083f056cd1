"""What the checks read, and what they report: plain values."""
