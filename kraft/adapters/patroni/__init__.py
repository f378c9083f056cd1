"""PostgreSQL under Patroni with a `kraft.Store` in the place of etcd: see `kraft.adapters.patroni.dcs`."""

from kraft.adapters.patroni.dcs import MODULE, Kraft, KraftError, main, register

__all__ = ["MODULE", "Kraft", "KraftError", "main", "register"]
