"""Files and folders that are replaced at once: nothing is lost by a crash or an error."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from collections import namedtuple
from pathlib import Path

import pytest

from latentbandits import ArtefactError, GaussianArms, load, replacing, save

Space = namedtuple("Space", "total used free")
OLD, NEW = GaussianArms([[0.9, 0.1]], 0.5), GaussianArms([[0.2, 0.8]], 0.5)


def test_a_model_is_there_at_every_moment_while_it_is_replaced(tmp_path):
    save(OLD, tmp_path / "model")
    problems, done = [], threading.Event()

    def read():
        while not done.is_set():
            try:
                load(tmp_path / "model")
            except (ArtefactError, OSError) as error:
                problems.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(40):
        save((NEW, OLD)[i % 2], tmp_path / "model")
    done.set()
    reader.join()
    assert problems == []


@pytest.mark.parametrize("step", range(12))
def test_a_process_killed_at_any_rename_leaves_a_model(step, tmp_path):
    """The process kills itself at the n-th call that renames or deletes."""
    save(OLD, tmp_path / "model")
    code = f"""
import os, signal, sys
from latentbandits import GaussianArms, save
calls = 0
def watch(event, arguments):
    global calls
    if event in ("os.rename", "os.remove", "os.rmdir", "ctypes.dlsym", "shutil.rmtree"):
        calls += 1
        if calls > {step}:
            os.kill(os.getpid(), signal.SIGKILL)
model = GaussianArms([[0.2, 0.8]], 0.5)
sys.addaudithook(watch)
save(model, {str(tmp_path / "model")!r})
"""
    finished = subprocess.run([sys.executable, "-c", code])
    assert finished.returncode in (0, -signal.SIGKILL)
    means = load(tmp_path / "model").means[0, 0]
    assert means in (0.9, 0.2)
    if finished.returncode == 0:
        assert means == 0.2


def without_exchange(monkeypatch):
    monkeypatch.setattr(replacing, "_exchange", lambda one, other: False)


def test_where_folders_cannot_be_exchanged_the_old_one_is_put_back_on_an_error(
    tmp_path, monkeypatch
):
    without_exchange(monkeypatch)
    save(OLD, tmp_path / "model")
    save(NEW, tmp_path / "model")
    assert load(tmp_path / "model").means[0, 0] == 0.2
    rename = Path.rename

    def fail(self, target):
        if self.name == "fresh":
            raise OSError("no space left")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="no space"):
        save(OLD, tmp_path / "model")
    assert load(tmp_path / "model").means[0, 0] == 0.2
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_full_disk_is_found_before_the_work(tmp_path, monkeypatch):
    save(NEW, tmp_path / "model")
    monkeypatch.setattr(replacing.shutil, "disk_usage", lambda folder: Space(9, 9, 1_000_000))
    with (
        pytest.raises(OSError, match=r"model cannot be written: its disk has 1\.0 MB free"),
        replacing.replacing_folder(tmp_path / "model"),
    ):
        raise AssertionError("the work began")
    assert load(tmp_path / "model").means[0, 0] == 0.2
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize(("free", "message"), [(10, "model cannot be written"), (10**9, "scratch")])
def test_a_disk_that_fills_up_during_the_work_is_named(free, message, tmp_path, monkeypatch):
    """Unless it is another disk that is full."""
    space = iter([10**9, free])
    usage = lambda folder: Space(9, 9, next(space))  # noqa: E731
    monkeypatch.setattr(replacing.shutil, "disk_usage", usage)
    with (
        pytest.raises(OSError, match=message),
        replacing.replacing_folder(tmp_path / "model"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device", "scratch")
    assert os.listdir(tmp_path) == []


def test_an_interrupted_save_is_explained(tmp_path):
    save(OLD, tmp_path / ".model-abc" / "old")
    with pytest.raises(ArtefactError, match=r"interrupted save is .*\.model-abc/old: move it back"):
        load(tmp_path / "model")


def test_a_replaced_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "keys"
    replacing.replace_file(path, b"one")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    replacing.replace_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["keys"]


def test_a_file_that_cannot_be_replaced_is_unchanged(tmp_path, monkeypatch):
    path = tmp_path / "keys"
    replacing.replace_file(path, b"one")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        replacing.replace_file(path, b"two")
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["keys"]


def test_files_are_added_all_or_none(tmp_path):
    (tmp_path / "kept").write_text("kept")
    with replacing.adding_files(tmp_path) as scratch:
        (scratch / "new").write_text("new")
    with contextlib.suppress(RuntimeError), replacing.adding_files(tmp_path) as scratch:
        (scratch / "kept").write_text("lost")
        raise RuntimeError
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "new"]
    assert (tmp_path / "kept").read_text() == "kept"
