"""The systems of the related work, as policies of latentbandits.

>>> from latentbandits_related import CLUB
>>> CLUB.__module__
'latentbandits_related.club'
"""

from typing import TYPE_CHECKING

from latentbandits.lazy import lazy_exports

if TYPE_CHECKING:
    from latentbandits_related.club import CLUB as CLUB
    from latentbandits_related.cofiba import COFIBA as COFIBA
    from latentbandits_related.dynucb import DynUCB as DynUCB
    from latentbandits_related.latent_order import LatentOrderTS as LatentOrderTS
    from latentbandits_related.meta import AdaTS as AdaTS
    from latentbandits_related.meta import MetaTS as MetaTS
    from latentbandits_related.nmf import NMFBandit as NMFBandit
    from latentbandits_related.particle_mf import ParticleMF as ParticleMF
    from latentbandits_related.per_user import GroupedLinUCB as GroupedLinUCB
    from latentbandits_related.per_user import PerUser as PerUser
    from latentbandits_related.policy_reuse import PolicyReuse as PolicyReuse
    from latentbandits_related.proball import ProBALL as ProBALL
    from latentbandits_related.rank1 import Rank1Elim as Rank1Elim
    from latentbandits_related.rank1 import Rank1ElimKL as Rank1ElimKL
    from latentbandits_related.sclub import SCLUB as SCLUB
    from latentbandits_related.structured import TSC as TSC
    from latentbandits_related.structured import UCBC as UCBC
    from latentbandits_related.structured import UCBS as UCBS
    from latentbandits_related.structured import SingleKUCB as SingleKUCB
    from latentbandits_related.subspace import learn_subspace as learn_subspace
    from latentbandits_related.transition_pairs import fit_transition_pairs as fit_transition_pairs

_MODULES = {
    "AdaTS": "latentbandits_related.meta",
    "CLUB": "latentbandits_related.club",
    "COFIBA": "latentbandits_related.cofiba",
    "DynUCB": "latentbandits_related.dynucb",
    "GroupedLinUCB": "latentbandits_related.per_user",
    "LatentOrderTS": "latentbandits_related.latent_order",
    "MetaTS": "latentbandits_related.meta",
    "NMFBandit": "latentbandits_related.nmf",
    "ParticleMF": "latentbandits_related.particle_mf",
    "PerUser": "latentbandits_related.per_user",
    "PolicyReuse": "latentbandits_related.policy_reuse",
    "ProBALL": "latentbandits_related.proball",
    "Rank1Elim": "latentbandits_related.rank1",
    "Rank1ElimKL": "latentbandits_related.rank1",
    "SCLUB": "latentbandits_related.sclub",
    "SingleKUCB": "latentbandits_related.structured",
    "TSC": "latentbandits_related.structured",
    "UCBC": "latentbandits_related.structured",
    "UCBS": "latentbandits_related.structured",
    "fit_transition_pairs": "latentbandits_related.transition_pairs",
    "learn_subspace": "latentbandits_related.subspace",
}
__all__ = sorted(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
