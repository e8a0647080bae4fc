"""Reading, finding and filtering MovieLens folders."""

import numpy as np
import pytest

from latentbandits.experiments.movielens_data import find_folder, given_folder, keep_active, load
from tests.reference import movielens_folder
from tests.reference.movielens_folder import REAL, needs_real_data


@pytest.fixture(scope="module")
def made():
    return movielens_folder.make()


@pytest.fixture
def folder(tmp_path, made):
    return movielens_folder.write(tmp_path / "ml-1m", made)


def test_reads_what_was_written(folder, made):
    data = load(folder)
    np.testing.assert_array_equal(data.user_ids, 2 * np.unique(made.users) + 1)
    np.testing.assert_array_equal(data.movie_ids, 3 * np.arange(60) + 2)
    np.testing.assert_array_equal(data.movie_ids[data.movies], 3 * made.actions + 2)
    np.testing.assert_array_equal(data.ratings, np.clip(np.rint(made.rewards), 1, 5))
    assert data.titles[7] == "Film: N\xfamero 7 (1999)"
    assert data.genre_names == movielens_folder.GENRES  # Documentary is on no rated movie
    np.testing.assert_array_equal(data.genres, made.groups)
    assert str(data) == f"{len(made.users):,} ratings of 60 movies by 150 users"


def test_filter_by_hand(folder):
    # Counts of both sides on the same ratings, then once more: a slow loop says the same.
    data = load(folder)
    rows = list(zip(data.users.tolist(), data.movies.tolist(), data.ratings.tolist(), strict=True))
    for _ in range(2):
        users = [u for u, _, _ in rows]
        movies = [m for _, m, _ in rows]
        rows = [row for row in rows if users.count(row[0]) > 25 and movies.count(row[1]) > 25]
    kept = keep_active(data, more_than=25)
    assert 0 < len(rows) < len(data.ratings)
    assert len(kept.ratings) == len(rows)
    np.testing.assert_array_equal(kept.user_ids[kept.users], data.user_ids[[u for u, _, _ in rows]])
    np.testing.assert_array_equal(
        kept.movie_ids[kept.movies], data.movie_ids[[m for _, m, _ in rows]]
    )
    assert len(kept.titles) == len(kept.movie_ids) == len(kept.genres)


def test_a_filter_that_keeps_nothing_says_so(folder):
    with pytest.raises(ValueError, match="no user and movie have more than 1000 ratings"):
        keep_active(load(folder), more_than=1000)


@needs_real_data
def test_the_papers_users_and_movies_come_out():
    data = load(REAL)
    assert (len(data.ratings), len(data.user_ids), len(data.movie_ids)) == (1_000_209, 6040, 3706)
    assert len(data.genre_names) == 18
    kept = keep_active(data, more_than=200)
    actual = {
        "users": len(kept.user_ids),
        "movies": len(kept.movie_ids),
        "ratings": len(kept.ratings),
    }
    assert actual == {"users": 1353, "movies": 1124, "ratings": 458_145}
    assert len(kept.genre_names) == 18
    others = keep_active(data, more_than=199)  # "at least 200"
    assert (len(others.user_ids), len(others.movie_ids)) != (1353, 1124)


def test_the_folder_is_given_by_option_or_environment(folder, monkeypatch, tmp_path):
    monkeypatch.delenv("LATENTBANDITS_DATA", raising=False)
    assert given_folder(None) is None
    assert given_folder(str(folder)) == folder
    monkeypatch.setenv("LATENTBANDITS_DATA", str(folder))
    assert given_folder(None) == folder
    monkeypatch.setenv("LATENTBANDITS_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"LATENTBANDITS_DATA .* there is no such folder"):
        given_folder(None)
    assert given_folder(str(folder)) == folder  # the option goes first


def test_a_cached_copy_is_used(folder, monkeypatch, tmp_path):
    monkeypatch.delenv("LATENTBANDITS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "latentbandits").mkdir()
    folder.rename(tmp_path / "latentbandits" / "ml-1m")
    assert find_folder(None) == tmp_path / "latentbandits" / "ml-1m"


def test_missing_files_are_named(folder):
    with pytest.raises(ValueError, match=r"--data .* lacks ratings\.dat and movies\.dat .*ml-1m\?"):
        given_folder(str(folder.parent))
    (folder / "movies.dat").unlink()
    with pytest.raises(ValueError, match=r"lacks movies\.dat \(it holds README, ratings\.dat\)"):
        given_folder(str(folder))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ratings.dat", "1::2::5::0\n1::5", r"ratings\.dat, line 2: not UserID::MovieID"),
        ("ratings.dat", "1::2::5::0\n1::5::x::0\n", r"line 2: .* \(1 such lines\)"),
        ("ratings.dat", "1::2::5::0\n1::5::9::0\n", "line 2: .* rating from 1 to 5"),
        ("ratings.dat", "", "cannot be read"),
        ("ratings.dat", "userId,movieId\n1,2\n", r"ratings\.dat"),
        ("ratings.dat", "1::77777::5::0\n", "movie 77777 is rated .* not in movies.dat"),
        ("movies.dat", "2::A Film\n", r"movies\.dat, line 1: not MovieID::Title::Genres"),
    ],
)
def test_broken_files_are_named_with_the_line(folder, name, content, message):
    (folder / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        load(folder)
