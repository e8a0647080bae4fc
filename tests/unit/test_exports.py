"""What the packages export: every name is there, also those that load when first asked for."""

import subprocess
import sys

import pytest

import latentbandits
from latentbandits import models


@pytest.mark.parametrize("package", [latentbandits, models])
def test_every_exported_name_is_there(package):
    for name in package.__all__:
        assert name in ("Context", "AnyPolicy") or getattr(package, name).__name__ == name


@pytest.mark.parametrize("package", [latentbandits, models])
def test_dir_lists_every_public_name(package):
    """In a fresh process too, before any name was used."""
    assert set(package.__all__) <= set(dir(package))
    code = f"import {package.__name__} as p; print(set(p.__all__) - set(dir(p)))"
    actual = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert actual.stdout.strip() == "set()"


def test_the_names_that_users_need_are_exported():
    needed = {"AnyPolicy", "Policy", "Decision", "Agent", "simulate", "save", "load", "mmTS"}
    assert needed <= set(latentbandits.__all__)


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="module 'latentbandits' has no attribute 'mmPS'"):
        _ = latentbandits.mmPS
    with pytest.raises(ImportError):
        from latentbandits import mmPS  # noqa: F401
