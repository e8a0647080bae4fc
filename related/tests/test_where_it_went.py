"""Names that moved out of the library say where they are."""

import pytest

import latentbandits
import latentbandits_related
from latentbandits.cli.main import main
from latentbandits.experiments import MOVED
from latentbandits.policies import registry


def test_every_related_policy_is_registered_by_its_entry_point():
    others = {"GroupedLinUCB", "PerUser", "fit_transition_pairs", "learn_subspace"}  # no policies
    assert set(latentbandits_related.__all__) == registry.RELATED | others
    assert {entry.name for entry in registry.entries()} >= registry.RELATED


@pytest.mark.parametrize("name", sorted(latentbandits_related.__all__))
def test_the_library_says_where_a_policy_went(name):
    with pytest.raises(ImportError, match=f"from latentbandits_related import {name}"):
        getattr(latentbandits, name)
    assert callable(getattr(latentbandits_related, name))


@pytest.mark.parametrize("name", MOVED)
def test_reproduce_says_where_an_experiment_went(name, capsys):
    assert main(["reproduce", name, "--runs", "3"]) == 2
    assert f"python -m evidence {name}" in capsys.readouterr().err
