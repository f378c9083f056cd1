"""The interface of a replica: its inputs and outputs, the applications that it can host, and its options."""
