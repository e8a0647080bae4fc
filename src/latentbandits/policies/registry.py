"""The registry of policies: `serve`, `simulate`, `reproduce`, the tests and the docs read it.

An entry is a name and a builder. The parameters of the builder say what it needs: a parameter
named like a field of `Inputs` receives that input, and every other parameter is an option. A
policy of your own is one call, `register(Entry("mine", Mine))`, or an entry point of the group
`latentbandits.policies` in your package's metadata.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from latentbandits.models.checks import FloatArray
from latentbandits.names import Registry, one_of
from latentbandits.policies.protocol import AnyPolicy, ThreeMethods, adopt

if TYPE_CHECKING:
    from latentbandits.models.artefacts import Catalogue

__all__ = [
    "Entry",
    "Inputs",
    "PolicySpec",
    "Scope",
    "as_markdown",
    "build",
    "entries",
    "find",
    "inputs_of",
    "parse",
    "register",
    "unregister",
]

ENTRY_POINTS = "latentbandits.policies"
AUTO = "auto"
"""The name that commands take for the policy that a fit recommends; no policy can have it."""

Scope = Literal["session", "population"]

RELATED = frozenset({
    "AdaTS", "CLUB", "COFIBA", "DynUCB", "LatentOrderTS", "MetaTS", "NMFBandit", "ParticleMF",
    "PolicyReuse", "ProBALL", "Rank1Elim", "Rank1ElimKL", "SCLUB", "SingleKUCB", "TSC", "UCBC",
    "UCBS",
})  # fmt: skip
"""Policies of the package latentbandits-related, so that an error can say where they are."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """Facts about a problem that a policy can be built from; None where a fact is not known.

    `n_actions`, `n_features` and `noise` are read from the model where they are not given.

    Args:
        model: a model of latent states.
        n_actions: number of actions, where it is fixed.
        n_features: number of features of an action, where actions have features.
        noise: standard deviation of a reward.
        reward_range: least and greatest mean reward, where the caller declares it.
        horizon: number of rounds of a session.
        items: features of the catalogue's actions, `(n_items, n_features)`.
        n_users: number of users, for policies that learn across users.
        averages: average reward of every action in the log, `(n_actions,)`.

    >>> from latentbandits import GaussianArms
    >>> Inputs(GaussianArms([[0.9, 0.1]], noise=0.5)).n_actions
    2
    """

    model: Any = None
    n_actions: int | None = None
    n_features: int | None = None
    noise: float | None = None
    reward_range: tuple[float, float] | None = None
    horizon: int | None = None
    items: FloatArray | None = None
    n_users: int | None = None
    averages: FloatArray | None = None

    def __post_init__(self) -> None:
        for name in ("n_actions", "n_features", "noise"):
            if getattr(self, name) is None and self.model is not None:
                object.__setattr__(self, name, _of_model(self.model, name))


def inputs_of(model: Any, catalogue: Catalogue | None, **facts: Any) -> Inputs:
    """Return the inputs of policies on a saved model, with what its catalogue knows."""
    if catalogue is None:
        return Inputs(model, **facts)
    return Inputs(model, items=catalogue.features, averages=catalogue.averages, **facts)


def _of_model(model: Any, name: str) -> Any:
    try:
        return getattr(model, name, None) or None
    except ValueError:  # a FunctionModel without a reward scale
        return None


_INPUTS = tuple(field.name for field in fields(Inputs))
_NOT_OPTIONS = ("model", "n_actions", "n_features", "items", "averages", "inputs")
_MISSING = {
    "model": "a model of latent states",
    "n_actions": "a model with a fixed set of actions; try LinUCB or LinTS",
    "n_features": "a model whose actions have features; try UCB1 or TS",
    "noise": "the noise of a reward",
    "reward_range": "the range of rewards, reward_range=(low, high)",
    "horizon": "the number of rounds, horizon=...",
    "items": "the features of the catalogue's actions",
    "n_users": "the number of users of the population, n_users=...",
}


@dataclass(frozen=True, eq=False)
class Entry:
    """One policy of the registry.

    Args:
        name: an identifier; people type it.
        build: a policy class or a function that returns a policy, or "module:name" of one, which
            is imported when it is used. It is called with keyword arguments only: the inputs
            named like its parameters, all `Inputs` for a parameter named `inputs`, and the options.
        scope: "session" if each session has a separate belief, "population" if all share one.
        source: citation.
        summary: one line for tables and help.
        on_request: whether `simulate` plays it only if it is named, because it is slow or of
            special interest.
        served: whether the service can play it; None: if its scope is "session". A population
            policy can be served if the order of rewards does not matter to it.
    """

    name: str
    build: Callable[..., AnyPolicy | ThreeMethods[Any]] | str
    scope: Scope = "session"
    source: str = ""
    summary: str = ""
    on_request: bool = False
    served: bool | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name == AUTO:
            raise ValueError(
                f"{self.name!r} cannot be the name of a policy: it must be an identifier other "
                f"than {AUTO!r}"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields only: cached values may not be sent to another process."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def can_be_served(self) -> bool:
        """Whether the service can play it."""
        return self.scope == "session" if self.served is None else self.served

    @property
    def wraps(self) -> bool:
        """Whether this is a policy around another, which is its option `policy`."""
        return "policy" in self.options

    @cached_property
    def builder(self) -> Callable[..., AnyPolicy | ThreeMethods[Any]]:
        """The builder; one that `build` names by text is imported."""
        if not isinstance(self.build, str):
            return self.build
        module, _, name = self.build.partition(":")
        made: Callable[..., AnyPolicy] = getattr(import_module(module), name)
        return made

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.builder).parameters

    @property
    def needs(self) -> tuple[str, ...]:
        """The inputs without which this policy cannot be built."""
        return tuple(
            name
            for name, parameter in self._parameters.items()
            if name in _INPUTS and parameter.default is parameter.empty
        )

    @property
    def options(self) -> tuple[str, ...]:
        """The options that a text such as `name(option=value)` can set."""
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return tuple(
            name
            for name, parameter in self._parameters.items()
            if parameter.kind in named and name not in _NOT_OPTIONS
        )

    def missing(self, inputs: Inputs, options: Mapping[str, Any] | None = None) -> list[str]:
        """Return the needed inputs that are neither known nor given as options."""
        named = options or {}
        return [name for name in self.needs if name not in named and getattr(inputs, name) is None]

    def fits(self, inputs: Inputs) -> bool:
        """Tell whether this policy can be built on these inputs, without options."""
        if self.missing(inputs):
            return False
        try:
            self.make(inputs, {})
        except ValueError:  # a model of the wrong kind
            return False
        return True

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise ValueError for an option that this policy does not have."""
        any_name = any(p.kind is p.VAR_KEYWORD for p in self._parameters.values())
        for name in () if any_name else options:
            if not self.options:
                raise ValueError(f"{self.name} has no options; got {name!r}")
            one_of(f"option of {self.name}", name, self.options)

    def make(self, inputs: Inputs, options: Mapping[str, Any]) -> AnyPolicy:
        """Return the policy on these inputs with these options."""
        self.check_options(options)
        missing = self.missing(inputs, options)
        if missing:
            raise ValueError(f"{self.name} needs {_MISSING[missing[0]]}")
        known = {name: getattr(inputs, name) for name in _INPUTS if name in self._parameters}
        values = {name: value for name, value in known.items() if value is not None}
        if "inputs" in self._parameters:
            values["inputs"] = inputs
        try:
            made = self.builder(**{**values, **options})
        except TypeError as error:
            raise ValueError(f"cannot build {PolicySpec(self.name, options)}: {error}") from None
        return adopt(made, self.name)


def register(entry: Entry) -> Entry:
    """Add a policy; ValueError if its name is taken.

    >>> from latentbandits import UCB1
    >>> entry = register(Entry("Cautious", lambda n_actions: UCB1(n_actions, scale=0.1)))
    >>> build("Cautious", Inputs(n_actions=3)).scale
    0.1
    >>> unregister("Cautious")
    """
    if entry.name in _registry.added:
        raise ValueError(f"{entry.name!r} was registered already: choose another name")
    _registry.add(entry.name, entry)
    return entry


def unregister(name: str) -> None:
    """Remove a policy that was added by `register`."""
    _registry.remove(name)


def added() -> tuple[Entry, ...]:
    """Return the policies that calls of `register` added in this process alone."""
    return tuple(_registry.added.values())


def entries(scope: Scope | None = None) -> tuple[Entry, ...]:
    """Return every policy, the library's first; of one `scope` if it is given."""
    return tuple(e for e in _registry.all().values() if scope is None or e.scope == scope)


def find(name: str) -> Entry:
    """Return the policy of this name; ValueError suggests the nearest name."""
    if name in RELATED and name not in _registry.all():
        raise ValueError(
            f"the policy {name} is in the package latentbandits-related, which is not "
            "installed here"
        )
    if name in ("mKG", "mmKG") and name not in _registry.all():
        raise ValueError(f"{name} is now mLookahead(steps=1), the same scores")
    return _registry.find(name)


def as_markdown(scope: Scope, *, options: bool = True) -> str:
    """Return the policies of one scope as a table for the documentation.

    >>> as_markdown("session").splitlines()[2].split(" | ")[0]
    '| `mUCB`'
    >>> as_markdown("session", options=False).splitlines()[0]
    '| policy | what it plays | source |'
    """
    rows = [["policy", "what it plays", "options", "source"], ["---"] * 4]
    for entry in entries(scope):
        named = ", ".join(f"`{option}`" for option in entry.options)
        rows.append([f"`{entry.name}`", entry.summary, named, entry.source])
    if not options:
        rows = [[name, summary, source] for name, summary, _, source in rows]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], lines[1].replace(" ", ""), *lines[2:]])


def parse(text: str | PolicySpec) -> PolicySpec:
    """Return the name and options of a policy's text, both known to the registry.

    >>> str(parse("mmTS(catch_all=True)"))
    'mmTS(catch_all=True)'
    >>> parse("mmTS(catchall=True)")
    Traceback (most recent call last):
    ValueError: unknown option of mmTS 'catchall': did you mean 'catch_all'? There are ...
    """
    spec = text if isinstance(text, PolicySpec) else PolicySpec.from_text(text)
    find(spec.name).check_options(spec.options)
    return spec


def build(policy: str | PolicySpec, inputs: Inputs) -> AnyPolicy:
    """Return the policy of this text or specification; ValueError says why it cannot be built.

    >>> from latentbandits import GaussianArms
    >>> build("mmTS(catch_all=True)", Inputs(GaussianArms([[0.9, 0.1]], 0.5, 0.1))).n_states
    2
    """
    spec = parse(policy)
    return find(spec.name).make(inputs, spec.options)


_HONG = "Hong et al. 2020"
_SAMPLING = "latentbandits.policies.latent.sampling"
_CLASSIC = "latentbandits.policies.classic"
_UCB = "latentbandits.policies.latent.ucb"
_WRAPPERS = "latentbandits.policies.wrappers"
_SHARED = "latentbandits.policies.shared"

_own = {entry.name: entry for entry in (
    Entry("mUCB", f"{_UCB}:mUCB", source=f"{_HONG}, Algorithm 1",
          summary="UCB over the states that the rewards have not ruled out"),
    Entry("mmUCB", f"{_UCB}:build_mmucb", source=f"{_HONG}, Algorithm 1",
          summary="mUCB with slack for an uncertain model"),
    Entry("mTS", f"{_SAMPLING}:mTS", source=f"{_HONG}, Algorithm 2",
          summary="Thompson sampling of the state, the model taken as true"),
    Entry("mmTS", f"{_SAMPLING}:mmTS", source=f"{_HONG}, Algorithm 3",
          summary="Thompson sampling of the state and of the model's parameters"),
    Entry("EXP4", f"{_CLASSIC}:build_exp4", source="Auer et al. 2002",
          summary="exponential weights over the states as experts"),
    Entry("mIDS", f"{_SAMPLING}:mIDS", source="Russo & Van Roy 2018",
          summary="information-directed sampling, the model taken as true"),
    Entry("mmIDS", f"{_SAMPLING}:mmIDS", source="Russo & Van Roy 2018",
          summary="information-directed sampling with an uncertain model"),
    Entry("mBayesUCB", f"{_UCB}:mBayesUCB",
          source="Kaufmann et al. 2012",
          summary="largest quantile of the states' mean rewards, the model taken as true"),
    Entry("mmBayesUCB", f"{_UCB}:mmBayesUCB",
          source="Kaufmann et al. 2012",
          summary="largest quantile of the posterior mean reward, over states and parameters"),
    Entry("mLookahead", "latentbandits.policies.latent.lookahead:build_lookahead",
          source="receding horizon; one step: Ryzhov et al. 2012",
          summary="optimal for a few more observations; small problems only", on_request=True),
    Entry("mmGreedy", f"{_UCB}:mmGreedy", source="baseline",
          summary="largest posterior mean reward"),
    Entry("UCB1", f"{_CLASSIC}:build_ucb1", source="Auer et al. 2002",
          summary="upper confidence bound of each action, no model of states"),
    Entry("TS", f"{_SAMPLING}:build_ts", source="Thompson 1933",
          summary="Gaussian Thompson sampling of each action, no model of states"),
    Entry("LinUCB", f"{_CLASSIC}:LinUCB", source="Li et al. 2010",
          summary="upper confidence bound of a linear reward, no model of states"),
    Entry("LinTS", f"{_SAMPLING}:LinTS", source="Agrawal & Goyal 2013",
          summary="Thompson sampling of a linear reward, no model of states"),
    Entry("Discounted", f"{_WRAPPERS}:build_discounted", source="Garivier & Moulines 2011",
          summary="a UCB policy in which older rounds count less"),
    Entry("SlidingWindow", f"{_WRAPPERS}:build_window", source="Garivier & Moulines 2011",
          summary="a UCB policy on the latest rounds only"),
    Entry("Exploring", f"{_WRAPPERS}:build_exploring", source="epsilon-greedy",
          summary="any policy, with a share of uniformly random actions for evaluation"),
    Entry("popularity", f"{_CLASSIC}:Popularity", source="baseline",
          summary="the best action for users on average, the same for every user"),
    Entry("uniform", f"{_CLASSIC}:build_uniform", source="baseline",
          summary="every eligible action equally often"),
    Entry("Phased", "latentbandits.learning.population_mixture:build_phased", "population",
          "after Zhou & Brunskill 2016",
          "fit a mixture to all users at doublings; serve each by a policy on it"),
    Entry("HierTS", f"{_SHARED}:HierTS", "population", "Hong et al. 2022",
          "Thompson sampling; users share an unknown mean, exactly", served=True),
    Entry("HierUCB", f"{_SHARED}:HierUCB", "population", "after Hong et al. 2022",
          "posterior mean plus one deviation; users share an unknown mean", served=True),
)}  # fmt: skip


def _declared(name: str, loaded: Any) -> tuple[str, Entry]:
    """Return the name and the entry of what another package declares."""
    entry = loaded if isinstance(loaded, Entry) else Entry(name, loaded)
    return entry.name, entry


_registry: Registry[Entry] = Registry("policy", ENTRY_POINTS, _own, _declared)


# A policy's name and options, written as text: `mmTS(catch_all=True)`.
#
# The text is parsed once, to a name and literal options. It is never evaluated.

_LARGEST = 2**53  # every JSON reader takes integers up to this exactly
_MAX_LENGTH = 1000
_EXAMPLE = "write a name, or a name with options such as mmTS(catch_all=True)"


@dataclass(frozen=True)
class PolicySpec:
    """The name of a policy and its options.

    Args:
        name: a name of the registry.
        options: values by name: numbers, text, booleans, None, or sequences of these. Another
            policy is given as its text.

    >>> spec = PolicySpec.from_text("EXP4(reward_range=[1, 5])")
    >>> spec.name, spec.options, str(spec)
    ('EXP4', {'reward_range': (1, 5)}, 'EXP4(reward_range=(1, 5))')
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ValueError(f"{self.name!r} cannot be the name of a policy: {_EXAMPLE}")
        options = {name: _jsonable(name, value) for name, value in self.options.items()}
        object.__setattr__(self, "options", options)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        if not self.options:
            return self.name
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.name}({options})"

    @classmethod
    def from_text(cls, text: str) -> PolicySpec:
        """Parse `Name` or `Name(option=value, ...)`; ValueError says what cannot be read."""
        if len(text) > _MAX_LENGTH:
            raise ValueError(
                f"a policy's text has at most {_MAX_LENGTH} characters; got {len(text)}"
            )
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise ValueError(f"cannot read the policy {text!r}: {_EXAMPLE}") from None
        if isinstance(tree, ast.Name):
            return cls(tree.id)
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            raise ValueError(f"cannot read the policy {text!r}: {_EXAMPLE}")
        if tree.args or any(keyword.arg is None for keyword in tree.keywords):
            raise ValueError(f"options have names, option=value; got {text!r}")
        options: dict[str, Any] = {}
        for keyword in tree.keywords:
            assert keyword.arg is not None
            if keyword.arg in options:
                raise ValueError(f"the option {keyword.arg} is given twice in {text!r}")
            options[keyword.arg] = _value(text, keyword.arg, keyword.value)
        return cls(tree.func.id, options)


def _value(text: str, option: str, node: ast.expr) -> Any:
    """Return the literal of an option; a policy inside a policy becomes its text."""
    if option == "policy" and isinstance(node, (ast.Name, ast.Call)):
        return str(PolicySpec.from_text(ast.unparse(node)))
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(
            f"the option {option} of {text!r} must be a literal: a number, text in quotes, True, "
            "False, None, or a list of these"
        ) from None


def _jsonable(name: str, value: Any) -> Any:
    """Return `value` with lists as tuples; ValueError unless JSON can hold it."""
    if isinstance(value, (list, tuple)):
        return tuple(_jsonable(name, item) for item in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"the option {name} must be finite; got {value}")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ValueError(f"the option {name} must be at most {_LARGEST} in size")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(
        f"the option {name} must be a number, text, True, False, None, or a list of these; "
        f"got {value!r}"
    )
