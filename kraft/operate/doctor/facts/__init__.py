"""The input and the output of the checks: plain values."""
