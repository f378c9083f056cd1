"""What a client of brokers decides, without I/O: outcomes and the time come in, requests come out."""
