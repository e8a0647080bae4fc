"""The options of `fit`, checked before any work; LogError gives the reason for a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import polars as pl

from latentbandits.learning.arms.learner import Method
from latentbandits.learning.backends.backend import AnyLog, LogEngine
from latentbandits.learning.backends.opening import (
    DECISION,
    LIST,
    POSITION,
    Opening,
    has_lists,
    is_spark,
)
from latentbandits.learning.lists import ClickModelName
from latentbandits.learning.logs.rows import Duplicates, Log, LogSummary, Rewards
from latentbandits.learning.logs.tables import (
    LogError,
    TableSource,
    TextFormat,
    check_one_of,
    column_names,
    parts_of,
    read_table,
)
from latentbandits.learning.rewards import TRANSFORMS, Transform
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.checks import BoolArray, FloatArray, positive_count, positive_number
from latentbandits.models.registry import reward_families, reward_family

Kind = Literal["auto", "linear", "arms"]
Form = Literal["linear", "arms"]
Auto = Literal["auto"]
Dynamics = Literal["auto", "none", "markov"]
Mask = Callable[[FloatArray], BoolArray]

MOST_ARMS = 50
"""Largest number of actions for which `auto` compares arms with a linear model; with more actions,
arms have too many means to learn, and the model is linear."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FitOptions(Opening):
    """The options of `fit`; "auto" is chosen by the evidence of held-out users.

    Args:
        user: column of users; None: found ("user" or "session").
        action: column of actions; None: found.
        reward: column of rewards; None: found.
        order: column that orders a user's rows; None: the order of the table.
        unrewarded: reward of exported decisions without one; None: they are dropped.
        list: column of the lists in which actions were shown together; None: `list_id`, if the
            log is an export with lists.
        position: column of the positions in a list, from 1 at the top; None: `list_position`.
        session_gap: seconds between two rows of a user that make a pause: a state that moves then
            moves across pauses by a second matrix; None: pauses do not count.
        more: further columns; `fit` adds the columns of the features.
        text_format: separator, encoding and columns of delimited text; detected by default.
        engine: where the log is summed: "memory"; "out_of_core", for a folder of Parquet larger
            than memory; "spark". "auto" depends on the size of the files. All engines learn the
            same model.
        scratch: folder for the partitions of "out_of_core".
        partitions: folder in which these partitions are kept for the next fit.
        master: address of the Spark cluster; a Spark DataFrame has its own.
        kind: "arms" is a mixture over users of per-state action means; "linear" completes the user
            x action matrix and clusters the users' vectors (Section 5.2); "auto" compares
            both by held-out users up to 50 actions, and is linear above.
        rewards: family of the rewards of arms.
        transform: "log1p" or "sqrt": model transformed rewards as Gaussian, and decide on original
            ones.
        states: number of latent states.
        rank: rank of the completed matrix, for "linear".
        reg: regularisation of the completion, for "linear".
        method: "em" or "spectral", for "arms".
        noise: standard deviation of Gaussian rewards; None: estimated.
        bootstrap: number of fits to resampled users; their variance is added to the prior.
        duplicates: rule for several rewards of one user for one action.
        names: the actions' names by id.
        user_features: columns with attributes of users: the model gets a gate P1(s | z), and
            `decide` takes these attributes by name.
        features: columns with features of each row (its context, or attributes of its action; `a*b`
            is an interaction): the model is a mixture of regressions on them, and requests send
            them by name.
        item_features: table with attributes of the actions, from which new ones are predicted
            (`POST /v1/actions`).
        click_model: how users look at a list: "each", "cascade" or "positions"; "auto" compares
            them by the evidence of held-out users.
        examination: how often each position is looked at, for "positions"; None: learned.
        dynamics: "markov" is a latent state that moves between a user's rows, "none" one that
            stands still; "auto" compares both by how well they predict held-out users' rows.
        earlier: a model and its catalogue; a fit of arms also starts from this model.
        seed: random seed.
        assess: whether the model is judged on held-out users; without it there is no verdict, no
            recommended policy and no page.
        quick: whether to answer in seconds: without a bootstrap, with one kind of model, with
            choices made on users of about 100,000 rewards, and with two policies, which play each
            held-out user once if the model is linear and rewards are clicks.
    """

    kind: Kind = "auto"
    rewards: Rewards | Auto = "auto"
    transform: Transform | None = None
    states: int | Auto = "auto"
    rank: int | Auto = "auto"
    reg: float | Auto = "auto"
    method: Method = "em"
    noise: float | None = None
    bootstrap: int = 20
    duplicates: Duplicates | Auto = "auto"
    names: Mapping[str, str] | None = None
    user_features: Sequence[str] = ()
    features: Sequence[str] = ()
    item_features: TableSource | None = None
    click_model: ClickModelName = "auto"
    examination: Sequence[float] | None = None
    dynamics: Dynamics = "auto"
    earlier: tuple[Any, Catalogue | None] | None = None
    seed: int = 0
    assess: bool = True
    quick: bool = False

    def check(self, kind: Form) -> None:
        """Refuse an option that only the other kind of model has, instead of ignoring it."""
        check_kind(kind)
        rewards, transform = self.rewards, self.transform
        check_one_of("rewards", rewards, ("auto", *reward_families()))
        check_one_of("method", self.method, get_args(Method))
        check_one_of("dynamics", self.dynamics, get_args(Dynamics))
        if self.session_gap is not None:
            positive_number("session_gap", self.session_gap)
            if self.dynamics == "none":
                raise LogError("session_gap is for a state that moves: leave dynamics none out")
        if self.dynamics == "markov" and (kind == "linear" or transform is not None):
            raise LogError(
                "dynamics markov is for models of --kind arms, without a transform: the state of "
                "other models stands still"
            )
        if transform is not None:
            check_one_of("transform", transform, tuple(TRANSFORMS))
            if rewards not in ("auto", "gaussian"):
                raise LogError(
                    f"--transform {transform} makes rewards that are modelled as gaussian; leave "
                    f"--rewards {rewards} out, or the transform"
                )
        if kind == "linear" and self.method != "em":
            raise LogError(f"method {self.method} is for models of --kind arms; this one is linear")
        if kind == "linear" and rewards not in ("auto", "gaussian", "bernoulli"):
            raise LogError(
                f"--rewards {rewards} is for models of --kind arms; a linear model takes gaussian "
                "or bernoulli rewards"
            )
        for name in ("reg", "rank"):
            if kind == "arms" and getattr(self, name) != "auto":
                raise LogError(f"{name} is for models of --kind linear; a model of arms has none")
        if self.noise is not None and rewards not in ("auto", "gaussian"):
            raise LogError(f"noise is for gaussian rewards; these are {rewards}")

    @property
    def wanted_states(self) -> tuple[int, ...] | None:
        """The numbers of states to try; None: the range of the learner."""
        return None if self.states == "auto" else (self.states,)


def with_lists(options: FitOptions, log: Any) -> FitOptions:
    """Return the options with the columns of lists, if the log is an export with lists.

    LogError if an option of lists is given and the columns are not.
    """
    if (options.list is None) != (options.position is None):
        raise LogError("list and position are given together: the columns of both")
    is_table = not isinstance(log, (Log, LogEngine)) and not is_spark(log)
    if options.list is None and is_table and has_lists(log):
        options = replace(options, list=LIST, position=POSITION)
    if options.list is None:
        if options.click_model != "auto" or options.examination is not None:
            raise LogError(
                "click_model and examination are for logs of lists: name the columns with --list "
                "and --position"
            )
        return options
    if options.duplicates not in ("auto", "keep"):
        raise LogError(f"duplicates {options.duplicates} is not for logs of lists: leave it out")
    return options


def check_kind(kind: Form) -> Form:
    """Refuse an unknown kind of model."""
    check_one_of("kind", kind, get_args(Kind))
    return kind


def kinds_of(kind: Kind, log: AnyLog, check: Callable[[Form], None]) -> tuple[Form, ...]:
    """Return the kinds of model to compare; "auto" is arms and linear up to 50 actions.

    `check` raises LogError if an option does not belong to a kind. Such a kind is left out of
    "auto", if the other one takes all options.
    """
    if kind != "auto":
        check(check_kind(kind))
        return (kind,)
    kinds: tuple[Form, ...] = ("arms", "linear") if log.n_actions <= MOST_ARMS else ("linear",)
    possible: list[Form] = []
    refused: list[LogError] = []
    for one in kinds:
        try:
            check(one)
            possible.append(one)
        except LogError as error:
            refused.append(error)
    if not possible:
        raise refused[0]
    return tuple(possible)


def check_sizes(states: int | Auto, rank: int | Auto, log: AnyLog) -> None:
    """Refuse more states or a higher rank than the log can have."""
    if states != "auto" and positive_count("states", states) > log.n_users:
        raise LogError(
            f"{states} states are more than the log's {log.n_users:,} users: ask for fewer"
        )
    if rank == "auto":
        return
    most = min(log.n_users, log.n_actions)
    if positive_count("rank", rank) > most:
        raise LogError(
            f"rank {rank} is above what the data hold: {log.n_users:,} users x "
            f"{log.n_actions:,} actions have rank {most} at most"
        )


def check_rewards(log: LogSummary, source: TableSource | AnyLog, options: FitOptions) -> None:
    """Refuse rewards outside the domain of the requested family or transform.

    `source` is read again to name the row of a bad reward, if it is a table.
    """
    rewards, transform = options.rewards, options.transform
    if transform is not None and transform in TRANSFORMS:
        kind = TRANSFORMS[transform]
        wanted = "above -1" if transform == "log1p" else "not negative"
        what, outside = f"--transform {transform}", log.rewards.outside[transform]
        mask: Mask = kind.outside
        help_ = "shift the rewards, or leave the transform out"
    elif rewards in reward_families():
        family = reward_family(rewards)
        wanted, what, mask = family.takes(), f"--rewards {rewards}", family.outside
        outside = log.rewards.outside[rewards]
        help_ = "choose another family, or --rewards auto"
    else:
        return
    if outside.n:
        first = first_row(source, options, mask) or outside.where
        raise LogError(
            f"{what} takes rewards that are {wanted}; {outside.n:,} of {log.n_events:,} "
            f"are not, the first is {first}: {help_}"
        )


def first_row(source: TableSource | AnyLog, options: FitOptions, mask: Mask) -> str | None:
    """Return the row of the first reward in `mask`; None if the source is not a table."""
    if isinstance(source, (Log, LogEngine)):
        return None
    column = options.reward or "reward"
    table = read_table(source, [column], text=(column,), text_format=options.text_format)
    numbers = table.frame[column].cast(pl.Float64, strict=False).fill_null(0.0).to_numpy()
    outside = mask(numbers)
    if not outside.any():
        return None
    row = int(outside.argmax())
    return f"{table.where(row)}: {numbers[row]:g}"


# Columns with attributes of users and features of rows.

FEATURES = "features"
"""The column of an export with the features that requests sent."""


def attribute_columns(
    user_features: Sequence[str],
    features: Sequence[str],
    user: str | None = None,
    reward: str | None = None,
) -> list[str]:
    """Return the columns to read besides user, action and reward; LogError if they are invalid.

    `user` and `reward` are the names of these columns, if they are not called so.
    """
    for option, names in (("user_features", user_features), ("features", features)):
        if isinstance(names, str):
            raise LogError(f"{option} must be a list of columns; got the text {names!r}")
        shown = f"--{option.replace('_', '-')}"
        twice = [name for i, name in enumerate(names) if name in names[:i]]
        if twice:
            raise LogError(f"{shown} names {twice[0]} twice")
        single = names if option == "user_features" else columns_of(names)
        if (reward or "reward") in single:
            raise LogError(
                f"{shown} {reward or 'reward'}: the reward is what is predicted, and is not known "
                "when an action is chosen"
            )
        if (user or "user") in single:
            raise LogError(
                f"{shown} {user or 'user'}: the id of a user says nothing about other users"
            )
    return list(dict.fromkeys([*user_features, *columns_of(features)]))


def default_features(log: Log | TableSource, text_format: TextFormat) -> list[str]:
    """Return ["features"] for exports of a service whose requests send features, else []."""
    if isinstance(log, Log):
        return []
    for part in parts_of(log):
        names = column_names(part)
        if DECISION not in names or FEATURES not in names:
            return []
        column = read_table(part, [FEATURES], text_format=text_format).frame[FEATURES]
        if column.dtype == pl.Null or column.null_count():
            return []
    return [FEATURES]


def check_no_other_kind(kind: str, rank: object, transform: object, item_features: object) -> None:
    """Refuse options of other kinds of models together with features."""
    for option, value, default in (
        ("kind", kind, "auto"), ("rank", rank, "auto"), ("transform", transform, None),
    ):  # fmt: skip
        if value != default:
            raise LogError(f"--{option} {value} is not for a model of --features: leave it out")
    if item_features is not None:
        raise LogError("item_features are for models of actions, not together with features")


def columns_of_term(term: str) -> list[str]:
    """Return the columns of a term such as `a` or `a*b`; LogError if it has another form."""
    parts = [part.strip() for part in term.split("*")]
    if len(parts) > 2 or not all(parts):
        raise LogError(f"--features {term}: an interaction is of two columns, such as a*b")
    return parts


def columns_of(terms: Sequence[str]) -> list[str]:
    """Return the columns that terms such as `a*b` need.

    >>> columns_of(["price", "price*country"])
    ['price', 'country']
    """
    return list(dict.fromkeys(part for term in terms for part in columns_of_term(term)))
