"""The decisions of a client of brokers, without I/O: outcomes and the time come in, requests come out."""
