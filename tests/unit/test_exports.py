"""What the packages export: every name is there, also those that load when first asked for."""

import pytest

import latentbandits
from latentbandits import models


@pytest.mark.parametrize("package", [latentbandits, models])
def test_every_exported_name_is_there(package):
    for name in package.__all__:
        assert name == "Context" or getattr(package, name).__name__ == name


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="module 'latentbandits' has no attribute 'mmPS'"):
        _ = latentbandits.mmPS
    with pytest.raises(ImportError):
        from latentbandits import mmPS  # noqa: F401
