"""A history that grows night by night has the rows of one that is read as a whole."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from msgspec import Struct

from metadata_log.disk import Disk
from metadata_log.history import VIEWS, Options
from metadata_log.history.cluster import Cluster
from metadata_log.history.engine import HistoryPass
from metadata_log.history.saved_pass import STATE, WIRING, labelled_parts, restore_pass, save_pass
from metadata_log.history.saved_values import SavedPassError
from metadata_log.reading.damage import OnDamage
from metadata_log.reading.place import Standing
from metadata_log.tables.increment import BadItem, Checkpoint, Step, TableRows, read_log, standing_checkpoint
from nightly_logs import DIRECTORY, Night, nights

CLUSTER = "c"


class Tables(Struct):
    """The tables after some nights: the closed rows of each step, the open rows, and the checkpoints."""

    closed: list[list[TableRows]]
    open: list[TableRows]
    checkpoints: list[Checkpoint]

    @property
    def rows(self) -> Counter[str]:
        """All rows, without what says how they came about."""
        every = [rows for step in self.closed for rows in step] + self.open
        return Counter(f"{rows.view} {values}" for rows in every for values in rows.values)


def a_night(tables: Tables, disk: Disk, *, on_damage: OnDamage = OnDamage.STRICT, settle: bool = False) -> Step | None:
    """One run over the present files; None where the log is behind the tables."""
    standing, kept, before = standing_checkpoint(disk, DIRECTORY, tables.checkpoints)
    if standing is Standing.BEHIND:
        return None
    bad: BadItem | None = None
    while True:
        step = Step(
            read_log(disk, DIRECTORY),
            before,
            cluster=CLUSTER,
            views=VIEWS,
            options=Options(show_secrets=True),
            on_damage=on_damage,
            settle=settle,
            in_front_of=bad,
        )
        try:
            found = list(step.rows())
        except BadItem as met:
            assert bad is None
            bad = met
        else:
            break
    tables.closed[kept:] = [[rows for rows in found if not rows.is_open]]
    tables.open = [rows for rows in found if rows.is_open]
    tables.checkpoints[kept:] = [step.after]
    return step


def empty() -> Tables:
    return Tables([], [], [])


def full(night: Night) -> Tables:
    tables = empty()
    a_night(tables, night.disk())
    return tables


def check_nights(seed: int, cluster: str, days: int) -> Counter[str]:
    print(f"seed {seed}")
    found, whole = nights(Random(seed), cluster, days)
    tables = empty()
    for night in found:
        step = a_night(tables, night.disk())
        assert step is None or night.is_late or step.damage is None
    wanted = full(whole)
    assert sum((tables.rows - wanted.rows).values()) == sum((wanted.rows - tables.rows).values()) == 0
    assert wanted.closed[0]
    assert wanted.open
    return Counter(
        rewritten=sum(night.was_rewritten for night in found),
        late=sum(night.is_late for night in found),
        compacted=sum(night.was_compacted for night in found),
        begins_at_snapshot=sum(night.begins_at_snapshot for night in found[:1]),
    )


@pytest.mark.parametrize(("cluster", "days"), [("dynamic3", 5), ("old39", 5), ("failover", 2)])
def test_nights_together_give_the_rows_of_the_whole_log(cluster: str, days: int) -> None:
    check_nights(Random().randrange(2**32), cluster, days)


def test_nights_of_a_log_that_begins_at_a_snapshot_give_the_rows_of_that_log() -> None:
    first = Random().randrange(2**32)
    seeds = range(first, first + 500)
    seed = next(seed for seed in seeds if nights(Random(seed), "dynamic3", 4)[0][0].begins_at_snapshot)
    assert check_nights(seed, "dynamic3", 4)["begins_at_snapshot"] == 1


def test_every_attribute_of_a_family_is_saved_or_follows_from_the_options() -> None:
    """An attribute that a family gains must be entered in one of the two tables."""
    story = HistoryPass(CLUSTER, frozenset(VIEWS), Options())
    parts = [part for _, part in labelled_parts(story)]
    assert {type(part) for part in parts} == set(STATE)
    for part in parts:
        slots = getattr(type(part), "__slots__", ())
        names = {*slots, *vars(part)} if hasattr(part, "__dict__") else set(slots)
        names |= {name for name, made in vars(type(part)).items() if isinstance(made, property) and made.fset}
        assert names == {*STATE[type(part)], *WIRING.get(type(part), ())}, type(part)


def test_a_saved_pass_of_other_views_or_another_version_is_refused() -> None:
    options = Options()
    data = save_pass(HistoryPass(CLUSTER, frozenset(VIEWS), options), cluster=CLUSTER, views=VIEWS, options=options)
    restored = restore_pass(data, cluster=CLUSTER, views=VIEWS, options=options)
    assert isinstance(restored._cluster, Cluster)
    with pytest.raises(SavedPassError, match="with another cluster, views or options"):
        restore_pass(data, cluster="d", views=VIEWS, options=options)
    with pytest.raises(SavedPassError, match="with another cluster, views or options"):
        restore_pass(data, cluster=CLUSTER, views=["churn"], options=options)
    with pytest.raises(SavedPassError, match="this is no saved pass"):
        restore_pass(b"\x93nothing", cluster=CLUSTER, views=VIEWS, options=options)
    renamed = data.replace(b"metadata_log.image.acls:AclsImage", b"metadata_log.image.acls:AclsOther")
    assert renamed != data
    with pytest.raises(SavedPassError, match="a pass keeps no"):
        restore_pass(renamed, cluster=CLUSTER, views=VIEWS, options=options)
