"""The transaction coordinator: who may write in which transaction, and how each transaction ends (KIP-98, KIP-890)."""
