"""fit on MovieLens latest-small, where it is present."""

import json
from pathlib import Path

import pytest

from latentbandits.cli import main

DATA = Path(__file__).parents[2] / ".." / "shared" / "data" / "ml-latest-small"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (DATA / "ratings.csv").is_file(),
        reason=f"MovieLens latest-small is not in {DATA}: the fit of real ratings is NOT tested",
    ),
]


def test_films_and_who_likes_them(tmp_path, capsys):
    command = ["fit", str(DATA / "ratings.csv"), "--user", "userId", "--action", "movieId"]
    command += ["--reward", "rating", "--time", "timestamp", "--items", str(DATA / "movies.csv")]
    command += ["--name-column", "title", "--rank", "5", "--states", "2", "--reg", "10"]
    assert main([*command, "--bootstrap", "2", "--out", str(tmp_path / "model")]) == 0
    report = json.loads((tmp_path / "model" / "report.json").read_text())
    assert (report["log"]["users"], report["log"]["actions"]) == (610, 9724)
    assert report["log"]["rewards"] == 100_836
    assert report["log"]["repeated_pairs"] == 0
    held_out = report["held_out"]
    assert held_out["rmse"] < 0.95 * held_out["rmse_of_action_means"]
    assert abs(held_out["coverage"][2]["covered"] - 0.9) < 0.05
    best = {action["name"] for action in report["states"][0]["best"]}
    assert "Shawshank Redemption, The (1994)" in best
    assert "Shawshank" in capsys.readouterr().out
