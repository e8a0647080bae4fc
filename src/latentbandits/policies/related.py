"""The modules that define the policies of related systems; each is imported at its first use."""

_POPULATION = "latentbandits.policies.population"
_STRUCTURED = "latentbandits.policies.structured"
_RANK1 = "latentbandits.policies.rank1"

MODULES = {
    "LatentOrderTS": "latentbandits.policies.latent_order",
    "PolicyReuse": "latentbandits.policies.policy_reuse",
    "ProBALL": "latentbandits.policies.proball",
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
