"""The interface of a replica: what goes in, what comes out, what a part may ask of it, and its options."""
