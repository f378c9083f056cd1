"""What goes into a replica, what comes out of it, what it can host, and its options."""
