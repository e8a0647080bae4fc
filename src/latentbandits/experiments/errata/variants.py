"""The compared variants of mmTS: each error of the appendix alone, and all of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from latentbandits.experiments.claims import Checkable, Order
from latentbandits.experiments.errata.printed import PrintedThompson
from latentbandits.experiments.errata.printed_linear import PrintedLinearThompson
from latentbandits.experiments.movielens.settings import SETTING as MOVIELENS
from latentbandits.experiments.synthetic.settings import SETTINGS
from latentbandits.policies import TS, mmTS
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.simulation.simulate import PolicyMaker

EXACT, PRINTED, E1, E2, NO_MODEL = (
    "mmTS, exact",
    "as printed",
    "E1 only",
    "E2 only",
    "TS, no model",
)
E2_WITH_INDICATOR = "E2, and the indicator in the parameters"

ARMS: Mapping[str, AnyPolicy | PolicyMaker] = {
    EXACT: mmTS,
    PRINTED: PrintedThompson,
    E1: partial(PrintedThompson, prior_predictive=False),
    E2_WITH_INDICATOR: partial(PrintedThompson, marginal_indicator=False),
    E2: partial(PrintedThompson, marginal_indicator=False, parameter_indicator=False),
    NO_MODEL: TS(10, 0.5, prior_mean=0.5, prior_spread=(1 / 12) ** 0.5),
}


def _only(erratum: int) -> PolicyMaker:
    """Return Algorithm 5 with one of its errors, E1 to E4, and without the others."""
    return partial(
        PrintedLinearThompson,
        indicator=erratum == 1,
        prior_predictive=erratum == 2,
        inverse=erratum == 3,
        repeated=erratum == 4,
    )


LINEAR: Mapping[str, AnyPolicy | PolicyMaker] = {
    EXACT: mmTS,
    PRINTED: PrintedLinearThompson,
    **{f"E{erratum} only": _only(erratum) for erratum in (1, 2, 3, 4)},
}

ARMS_CLAIMS: tuple[Checkable, ...] = (
    *(
        Order(
            f"E1 {setting.sigma0:g}",
            "the indicator makes mmTS worse than having no model",
            setting.name,
            "regret",
            better=(NO_MODEL,),
            worse=(PRINTED, E1),
        )
        for setting in SETTINGS
    ),
    Order(
        "E2",
        "prior predictives cost regret while the indicator stays in the parameters",
        SETTINGS[-1].name,
        "regret",
        better=(EXACT,),
        worse=(E2_WITH_INDICATOR,),
    ),
)

LINEAR_CLAIMS: tuple[Checkable, ...] = (
    Order(
        "E1 linear",
        "with features too, the indicator and all errors together cost reward",
        MOVIELENS,
        "reward",
        better=(EXACT,),
        worse=(PRINTED, E1),
    ),
)
