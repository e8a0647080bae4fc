"""The faults as tests: the full form of all of them is slow, two run shortly in `make test` too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.faults import FAULTS
from tests.faults.propensities import chi_square
from tests.faults.table import Fault

Record = Callable[[str, object], None]


ALWAYS = ("kills", "visibility")
"""Faults whose short form guards every change: nothing acknowledged is lost or not counted."""


@pytest.mark.parametrize(
    "fault", [f for f in FAULTS if f.name in ALWAYS], ids=lambda fault: fault.name
)
def test_short(fault: Fault, tmp_path: Path, record_property: Record) -> None:
    _check(fault, tmp_path, record_property, full=False)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_full(fault: Fault, tmp_path: Path, record_property: Record) -> None:
    _check(fault, tmp_path, record_property, full=True)


def _check(fault: Fault, folder: Path, record_property: Record, *, full: bool) -> None:
    results = fault.run(folder, full)
    for result in results:
        record_property("fault", list(result))
        if "NO POSTGRESQL" in result.counted:
            pytest.skip(result.counted)
    assert all(result.holds for result in results), results


def test_the_propensity_test_sees_a_wrong_propensity() -> None:
    """A planted error: actions of chance .5, .3, .2 that claim .53, .27, .2."""
    counts = {"a": 50_000, "b": 30_000, "c": 20_000}

    def p(chances: dict[str, float]) -> float:
        return chi_square(
            [{"action": a, "propensity": chances[a]} for a, n in counts.items() for _ in range(n)]
        )

    assert p({"a": 0.5, "b": 0.3, "c": 0.2}) > 0.001
    assert p({"a": 0.53, "b": 0.27, "c": 0.2}) < 1e-6
