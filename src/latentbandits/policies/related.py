"""The modules that define the policies of related systems; each is imported at its first use."""

_POPULATION = "latentbandits.policies.shared"
_STRUCTURED = "latentbandits_related.structured"
_RANK1 = "latentbandits_related.rank1"

MODULES = {
    "LatentOrderTS": "latentbandits_related.latent_order",
    "PolicyReuse": "latentbandits_related.policy_reuse",
    "ProBALL": "latentbandits_related.proball",
    "Rank1Elim": _RANK1,
    "Rank1ElimKL": _RANK1,
    "SingleKUCB": _STRUCTURED,
    "TSC": _STRUCTURED,
    "UCBC": _STRUCTURED,
    "UCBS": _STRUCTURED,
    "AdaTS": _POPULATION,
    "CLUB": _POPULATION,
    "COFIBA": _POPULATION,
    "DynUCB": _POPULATION,
    "GroupedLinUCB": _POPULATION,
    "HierTS": _POPULATION,
    "HierUCB": _POPULATION,
    "MetaTS": _POPULATION,
    "NMFBandit": _POPULATION,
    "ParticleMF": _POPULATION,
    "PerUser": _POPULATION,
    "Phased": _POPULATION,
    "SCLUB": _POPULATION,
}
