"""The frame of the benchmarks; the speeds themselves are measured by `make bench`, not here."""

import io
import itertools
import json
import sys
from typing import get_type_hints

import pytest
from benchmarks.__main__ import discover, main
from benchmarks.report import Report, Target
from benchmarks.timing import Comparison, Contestant, Timing, optional, race, report
from rich.console import Console


def test_a_target_is_met_missed_or_not_measured():
    assert Target("a", 20.0, at_least=15).met is True
    assert Target("a", 14.9, at_least=15).met is False
    assert Target("a", 2.0, at_most=2).met is True
    assert Target("a", 2.1, at_most=2).met is False
    assert Target("a", None, at_most=2).met is None
    assert Target("a", 3.0).met is None
    assert Target("a", 3.0, at_most=4, unit="GiB").bound == "at most 4 GiB"


@pytest.mark.slow
def test_contestants_take_turns_and_only_play_is_timed():
    calls = []

    def contestant(name):
        def prepare():
            calls.append(f"prepare {name}")
            return lambda: calls.append(f"play {name}")

        return Contestant(name, 10, prepare)

    timings = race([contestant("a"), contestant("b")], repeats=2)
    turn = ["prepare a", "play a", "prepare b", "play b"]
    assert calls == 3 * turn  # one to warm up
    assert set(timings) == {"a", "b"}
    assert all(0 <= t.best <= t.median for t in timings.values())


@pytest.mark.slow
def test_timings_are_microseconds_per_round(monkeypatch):
    clock = itertools.accumulate(itertools.cycle([0.0, 1.0, 0.0, 3.0]))  # plays of 1 and 3 seconds
    monkeypatch.setattr("benchmarks.timing.time.process_time", lambda: next(clock))
    timings = race([Contestant("a", 1000, lambda: list)], repeats=3)
    assert timings["a"] == Timing(best=1000.0, median=3000.0)  # of 3, 1 and 3, after one of 1


def test_a_missing_peer_is_said_loudly():
    notes = []
    assert optional("a_library_nobody_has", list, notes) == []
    timings = {"ours": Timing(1.0, 1.0)}
    actual = report("title", timings, [Comparison("theirs", "ours", at_least=2)], notes)
    out = io.StringIO()
    actual.show(Console(file=out, width=120))
    assert "a_library_nobody_has could not be imported" in out.getvalue()
    assert "NOT MEASURED" in out.getvalue()
    assert actual.json()["targets"][0]["met"] is None


def test_ratios_are_of_best_times():
    timings = {"slow": Timing(30.0, 100.0), "fast": Timing(2.0, 2.0)}
    (target,) = report("title", timings, [Comparison("slow", "fast", at_least=15)]).targets
    assert target.measured == 15
    assert target.met


def test_every_benchmark_is_found_without_its_peers():
    assert {"arms", "imports", "linear", "memory", "propensity"} <= set(discover())


def test_every_benchmark_returns_a_report():
    """A script with a command line of its own is not one of them."""
    returned = {name: get_type_hints(main)["return"] for name, main in discover().items()}
    assert returned == dict.fromkeys(returned, Report)


def broken():
    raise RuntimeError("the server did not start")


def sound():
    return Report("A sound one")


def test_a_benchmark_that_stops_lets_the_others_run(monkeypatch, capsys, tmp_path):
    benchmarks = {"broken": broken, "sound": sound}
    monkeypatch.setattr("benchmarks.__main__.discover", lambda: benchmarks)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--out", str(tmp_path)])
    assert main() == 1
    out = capsys.readouterr().out
    assert "the server did not start" in out
    assert "A sound one" in out
    assert "stopped with an error: broken" in out
    assert set(json.loads((tmp_path / "results.json").read_text())["benchmarks"]) == set(benchmarks)


def test_import_time_benchmark_reports_what_it_measured(monkeypatch):
    from benchmarks import imports

    monkeypatch.setattr(imports, "REPEATS", 1)
    actual = imports.main()
    assert isinstance(actual, Report)
    assert actual.targets[0].measured > 0
    assert actual.targets[1].measured > 0
    assert actual.targets[2].measured == 0


def test_an_unknown_name_gets_a_suggestion(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "armz"])
    with pytest.raises(SystemExit) as error:
        main()
    assert error.value.code == 2
    assert "did you mean 'arms'?" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_found_before_the_work(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--out", str(tmp_path / "file" / "out")])
    with pytest.raises(SystemExit) as error:
        main()
    assert error.value.code == 2
    assert "cannot write to" in capsys.readouterr().err
