"""Worker processes of the command line."""

import os

from latentbandits.cli.console import executor

NAME = "OPENBLAS_NUM_THREADS"


def test_workers_keep_to_one_blas_thread_and_this_process_is_left_alone(monkeypatch):
    monkeypatch.delenv(NAME, raising=False)
    with executor(2) as pool:
        assert pool.submit(os.getenv, NAME).result() == "1"
    assert NAME not in os.environ


def test_a_number_of_threads_that_was_set_is_kept(monkeypatch):
    monkeypatch.setenv(NAME, "3")
    with executor(2) as pool:
        assert pool.submit(os.getenv, NAME).result() == "3"
    assert os.environ[NAME] == "3"


def test_one_job_needs_no_workers():
    with executor(1) as pool:
        assert pool is None
