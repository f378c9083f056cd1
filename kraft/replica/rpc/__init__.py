"""The RPCs of the quorum between wire form and flat form, and the refusals."""
