"""What the packages export: every name is there, also those that load when first asked for."""

import subprocess
import sys

import pytest

import latentbandits
from latentbandits import learning, models, policies, serving, testing


@pytest.mark.parametrize("package", [latentbandits, models])
def test_every_exported_name_is_there(package):
    for name in package.__all__:
        assert name in ("Context", "AnyPolicy") or getattr(package, name).__name__ == name


COMPLETE = """
import sys
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for blocked in {blocked}:
    sys.modules[blocked] = None
shell.run_cell("import {package} as package")
with provisionalcompleter():
    for use_jedi in (False, True):
        shell.Completer.use_jedi = use_jedi
        found = {{one.text.removeprefix(".") for one in shell.Completer.completions("package.", 8)}}
        print(*sorted(name for name in found if not name.startswith("_")))
"""


def completed(package, blocked=()):
    """Return what Tab shows after the package's name in a fresh IPython, without and with jedi."""
    code = COMPLETE.format(package=package.__name__, blocked=blocked)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "package",
    [latentbandits, models, policies, learning, serving, testing],
    ids=lambda p: p.__name__,
)
def test_tab_shows_the_public_names_and_no_others(package):
    """In a fresh process, before any name was used."""
    assert completed(package) == [sorted(package.__all__)] * 2


def test_tab_works_without_extras():
    assert completed(latentbandits, ("polars", "sklearn")) == [latentbandits.__all__] * 2


def test_the_names_that_users_need_are_exported():
    needed = {"AnyPolicy", "Policy", "Decision", "Agent", "simulate", "save", "load", "mmTS"}
    assert needed <= set(latentbandits.__all__)


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="module 'latentbandits' has no attribute 'mmPS'"):
        _ = latentbandits.mmPS
    with pytest.raises(ImportError):
        from latentbandits import mmPS  # noqa: F401
