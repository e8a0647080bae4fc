"""The entries of the policy registry: the entry points of this package name them.

A builder is a text, "module:name", so that a policy is imported when it is first used.
"""

from latentbandits.policies.registry import Entry

_PACKAGE = "latentbandits_related"

SingleKUCB = Entry(
    "SingleKUCB",
    f"{_PACKAGE}.structured:SingleKUCB",
    source="after Maillard & Mannor 2014",
    summary="optimism over the states that every action's average allows",
    on_request=True,
)
UCBS = Entry(
    "UCBS",
    f"{_PACKAGE}.structured:UCBS",
    source="Lattimore & Munos 2014",
    summary="the largest mean reward over the states that are allowed",
    on_request=True,
)
UCBC = Entry(
    "UCBC",
    f"{_PACKAGE}.structured:UCBC",
    source="Gupta et al. 2021",
    summary="UCB among the actions that are best in some allowed state",
    on_request=True,
)
TSC = Entry(
    "TSC",
    f"{_PACKAGE}.structured:TSC",
    source="Gupta et al. 2021",
    summary="Thompson sampling among the actions that are best in some allowed state",
    on_request=True,
)
PolicyReuse = Entry(
    "PolicyReuse",
    f"{_PACKAGE}.policy_reuse:PolicyReuse",
    source="Rosman, Hawasly & Ramamoorthy 2016",
    summary="choose among the states' best actions by information or improvement",
    on_request=True,
)
LatentOrderTS = Entry(
    "LatentOrderTS",
    f"{_PACKAGE}.latent_order:LatentOrderTS",
    source="after Carlsson, Mwai & Johansson 2026",
    summary="Thompson sampling of the state by its order of actions only",
    on_request=True,
)
ProBALL = Entry(
    "ProBALL",
    f"{_PACKAGE}.builders:build_proball",
    source="after Kausik, Tan & Tewari 2025",
    summary="LinUCB in the subspace of a prior that was learned offline",
    on_request=True,
)
Rank1Elim = Entry(
    "Rank1Elim",
    f"{_PACKAGE}.builders:build_rank1elim",
    source="Katariya et al. 2017a",
    summary="eliminate rows and columns; actions are pairs of them",
    on_request=True,
)
Rank1ElimKL = Entry(
    "Rank1ElimKL",
    f"{_PACKAGE}.builders:build_rank1elimkl",
    source="Katariya et al. 2017b",
    summary="Rank1Elim with bounds for clicks",
    on_request=True,
)
ParticleMF = Entry(
    "ParticleMF",
    f"{_PACKAGE}.particle_mf:ParticleMF",
    scope="population",
    source="Kawale et al. 2015",
    summary="Thompson sampling of a matrix factorisation by particles, weights corrected",
)
NMFBandit = Entry(
    "NMFBandit",
    f"{_PACKAGE}.nmf:NMFBandit",
    scope="population",
    source="after Sen et al. 2017",
    summary="epsilon-greedy on a non-negative factorisation of users and items",
)
COFIBA = Entry(
    "COFIBA",
    f"{_PACKAGE}.cofiba:COFIBA",
    scope="population",
    source="Li, Karatzoglou & Gentile 2016",
    summary="LinUCB on clusters of users for every cluster of items",
)
CLUB = Entry(
    "CLUB",
    f"{_PACKAGE}.club:CLUB",
    scope="population",
    source="Gentile, Li & Zappella 2014",
    summary="LinUCB on clusters of users, found by cutting a graph",
)
SCLUB = Entry(
    "SCLUB",
    f"{_PACKAGE}.sclub:SCLUB",
    scope="population",
    source="Li, Chen, Li & Leung 2019",
    summary="LinUCB on sets of users that split and merge",
)
DynUCB = Entry(
    "DynUCB",
    f"{_PACKAGE}.dynucb:DynUCB",
    scope="population",
    source="Nguyen & Lauw 2014",
    summary="LinUCB on k clusters of users, who move to the nearest",
)
MetaTS = Entry(
    "MetaTS",
    f"{_PACKAGE}.meta:MetaTS",
    scope="population",
    source="Kveton et al. 2021",
    summary="HierTS whose mean is drawn once for every user",
)
AdaTS = Entry(
    "AdaTS",
    f"{_PACKAGE}.meta:AdaTS",
    scope="population",
    source="Basu et al. 2021",
    summary="HierTS whose users keep the prior of their start",
)
