"""Every setting of the service, stated once for flags, file, environment and --help."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta

from latentbandits.models.numerics.laws import REALS
from latentbandits.models.protocol import with_defaults
from latentbandits.options import seconds
from latentbandits.policies.registry import AUTO, parse
from latentbandits.serving.records import SwapMode
from latentbandits.serving.stores import Writing

PREFIX = "LATENTBANDITS_"
MAIN, HOLDOUT, TRIAL = "policy", "holdout", "trial"
TRIAL_SHARE = 0.5  # of the main group's new sessions, while a model is on trial
PropensityMode = Literal["counted", "policy", "none"]
_NOISES = 5.0  # rewards may exceed the data by at least this many standard deviations


class Group(NamedTuple):
    """An experiment group: a share of all sessions, and the policy that they get."""

    name: str
    policy: str
    share: float


def parse_groups(text: str) -> tuple[Group, ...]:
    """Return the groups of a text "name=policy:share; name=policy:share".

    >>> parse_groups("greedy=mmGreedy:0.1; popular=uniform:0.05")[0]
    Group(name='greedy', policy='mmGreedy', share=0.1)
    """
    groups = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, rest = part.partition("=")
        policy, colon, share = rest.rpartition(":")
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        if not (equals and colon and name.strip() and 0 <= number <= 1):
            raise ValueError(f"{part!r} is not a group: give NAME=POLICY:SHARE, as in a=mTS:0.1")
        groups.append(Group(name.strip(), policy.strip(), number))
    return tuple(groups)


def uniform(session: str, salt: bytes, purpose: bytes = b"") -> float:
    """Return a number in [0, 1) for a session id, always the same one; of each purpose another."""
    digest = hashlib.blake2b(session.encode(), digest_size=8, key=salt, person=purpose).digest()
    return int.from_bytes(digest, "big") / 2.0**64


def group_of(session: str, salt: bytes, groups: Sequence[Group]) -> str:
    """Return the group of a session: by a salted hash, so the same in every process.

    `groups` excludes the main group, which gets all other sessions.

    >>> group_of("ann", b"salt", []), group_of("ann", b"salt", [Group("all", "mTS", 1.0)])
    ('policy', 'all')
    """
    place, end = uniform(session, salt[:64]), 0.0
    for group in groups:
        end += group.share
        if place < end:
            return group.name
    return MAIN


class RewardRange(NamedTuple):
    """The least and the greatest reward; infinite where there is no limit."""

    low: float = -math.inf
    high: float = math.inf


UNLIMITED = RewardRange()


def reward_range(model: Any, notes: Mapping[str, Any]) -> RewardRange:
    """Return the range of a model's rewards.

    The family determines the range: 0 to 1 for clicks, 0 and above for counts, the values of
    categories. A family that takes every number (Gaussian rewards) has the range of the data that
    the model was learned from, widened on either side by the width of the range, and by at least
    five standard deviations of the noise. A model without such data has no limits.

    >>> from latentbandits import GaussianArms
    >>> reward_range(GaussianArms([[0.5]], noise=0.1), {"reward_range": [0.0, 2.0]})
    RewardRange(low=-2.0, high=4.0)
    """
    support = with_defaults(model).support
    bounds = support.bounds
    if bounds is not None:
        return RewardRange(*map(float, bounds))
    if support is not REALS:
        return RewardRange(float(support.low))
    noted_range = notes.get("reward_range")
    if noted_range is None:
        return UNLIMITED
    low, high = map(float, noted_range)
    room = max(high - low, _NOISES * float(model.noise))
    return RewardRange(low - room, high + room)


def _doc(text: str, **limits: Any) -> Meta:
    return Meta(description=text, **limits)


def _time(text: str, **limits: Any) -> Meta:
    """Describe a setting in seconds, which may be written with a unit: 30s, 15m, 2h, 30d."""
    return Meta(description=text, extra={"time": True}, **limits)


class EngineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of an engine, without HTTP; times in seconds."""

    policy: Annotated[
        str,
        _doc("policy of most sessions, such as mmTS or 'mmTS(catch_all=True)'; auto: the one that "
             "the model's fit recommends, else one that is tuned before it is active, else mmTS"),
    ] = AUTO  # fmt: skip
    holdout_policy: Annotated[str, _doc("policy of the sessions that are held out")] = "uniform"
    holdout_share: Annotated[float, _doc("share of sessions held out", ge=0, le=1)] = 0.0
    groups: Annotated[
        str,
        _doc("further experiment groups, NAME=POLICY:SHARE, separated by semicolons; the flag "
             "--group adds one and can be repeated"),
    ] = ""  # fmt: skip
    state_names: Annotated[
        str, _doc("names of the latent states for the pages, comma-separated, state 1 first")
    ] = ""
    explore: Annotated[
        float,
        _doc("probability of a uniformly random action: propensities are then bounded below, so "
             "that the log can judge other policies", ge=0, le=1),
    ] = 0.0  # fmt: skip
    swap: Annotated[
        SwapMode,
        _doc("what a new model does to sessions under way: they keep theirs (pinned), their log is "
             "replayed under it (migrated), or they begin anew (restarted)"),
    ] = "pinned"  # fmt: skip
    click_model: Annotated[
        str,
        _doc("how users look at lists: each, cascade or positions(1, 0.6, 0.4); auto: what the "
             "model's fit says, else each"),
    ] = AUTO  # fmt: skip
    propensity: Annotated[
        PropensityMode,
        _doc("closed forms and counted draws (counted), the policy's own way (policy), or none"),
    ] = "counted"
    propensity_draws: Annotated[int, _doc("draws that are counted", ge=1, le=10_000)] = 100
    session_ttl: Annotated[float, _time("time without a request until a session ends", gt=0)] = (
        30 * 86400.0
    )
    retention: Annotated[
        float, _time("time without a request until a session and its log are deleted", gt=0)
    ] = 90 * 86400.0
    cached_sessions: Annotated[int, _doc("sessions whose belief is kept in memory", ge=1)] = 10_000
    cached_megabytes: Annotated[
        float,
        _doc(
            "memory for the beliefs and models of these sessions, without the active model, about",
            gt=0,
        ),
    ] = 48.0
    snapshot_rounds: Annotated[
        int, _doc("rewards of a session between two snapshots of its belief; 0: none", ge=0)
    ] = 50
    reward_min: Annotated[
        float | None, _doc("smallest reward that is accepted; default: inferred from the model")
    ] = None
    reward_max: Annotated[
        float | None, _doc("largest reward that is accepted; default: inferred from the model")
    ] = None
    reward_default: Annotated[
        float | None, _doc("reward of decisions that got none within reward_timeout")
    ] = None
    reward_timeout: Annotated[
        float | None, _time("time until a decision gets the default reward")
    ] = None

    def side_groups(self) -> tuple[Group, ...]:
        """Return the groups beside the main one.

        The first is `holdout`, from the settings `holdout_share` and `holdout_policy`; if its share
        is 0, a group named `holdout` among `groups` takes its place.
        """
        named = parse_groups(self.groups)
        if self.holdout_share == 0 and any(group.name == HOLDOUT for group in named):
            return named
        return (Group(HOLDOUT, self.holdout_policy, self.holdout_share), *named)

    def policies(self) -> dict[str, str]:
        """Return the policy of every group."""
        return {MAIN: self.policy, **{g.name: g.policy for g in self.side_groups()}}

    def shares(self) -> dict[str, float]:
        """Return the share of sessions that every group gets."""
        sides = {group.name: group.share for group in self.side_groups()}
        return {MAIN: max(0.0, 1.0 - sum(sides.values())), **sides}

    def check(self) -> None:
        """Raise ValueError if settings are inconsistent."""
        names = [group.name for group in self.side_groups()]
        twice = [name for i, name in enumerate(names) if name in (MAIN, *names[:i])]
        if twice:
            raise ValueError(
                f"there are two groups {twice[0]!r}: {MAIN!r} is the main one, {HOLDOUT!r} is "
                "the one of holdout_share, and every other group needs a name of its own"
            )
        if not 0 <= self.explore <= 1:
            raise ValueError(f"explore must be a probability from 0 to 1; got {self.explore:g}")
        if sum(group.share for group in self.side_groups()) > 1 + 1e-9:
            raise ValueError("the shares of all groups sum to more than 1")
        if self.retention < self.session_ttl:
            raise ValueError(
                f"retention ({self.retention:g} s) must be at least session_ttl "
                f"({self.session_ttl:g} s): a session under way needs its whole log"
            )
        if (self.reward_default is None) != (self.reward_timeout is None):
            raise ValueError("reward_default and reward_timeout go together: give both or neither")
        if self.reward_timeout is not None and self.reward_timeout <= 0:
            raise ValueError(f"reward_timeout must be above 0; got {self.reward_timeout:g}")
        low, high, default = self.reward_min, self.reward_max, self.reward_default
        if low is not None and high is not None and low > high:
            raise ValueError(f"reward_min ({low:g}) is above reward_max ({high:g})")
        if default is not None and self.out_of_range(default):
            raise ValueError(f"reward_default: {self.out_of_range(default)}")

    def limits(self, usual: RewardRange) -> RewardRange:
        """Return the range of accepted rewards; `usual` is the model's range."""
        return RewardRange(
            usual.low if self.reward_min is None else self.reward_min,
            usual.high if self.reward_max is None else self.reward_max,
        )

    def out_of_range(self, value: float, usual: RewardRange = UNLIMITED) -> str | None:
        """Return why a reward is refused; None where it is in the range.

        `usual` is the range of the model, for a limit that no setting gives.
        """
        low, high = self.limits(usual)
        if value < low:
            setting, limit = self.reward_min, f"below reward_min, which is {low:g}"
        elif value > high:
            setting, limit = self.reward_max, f"above reward_max, which is {high:g}"
        else:
            return None
        source = " by the model's family and data" if setting is None else ""
        return f"{value:g} is {limit}{source}"


class Settings(EngineSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings by name; a flag is --name-with-dashes, a variable LATENTBANDITS_NAME."""

    host: Annotated[str, _doc("address to listen on; without keys only a loopback one")] = (
        "127.0.0.1"
    )
    port: Annotated[int, _doc("port to listen on; 0: any that is free", ge=0, le=65535)] = 8000
    store: Annotated[str, _doc("memory, sqlite:PATH or postgresql://USER@HOST/DATABASE")] = "memory"
    synchronous: Annotated[
        Literal["FULL", "NORMAL"],
        _doc("sqlite: FULL survives a power cut, NORMAL only the end of the process"),
    ] = "FULL"
    checkpoint_pages: Annotated[
        int, _doc("sqlite: pages of the write-ahead log until it is folded into the file", ge=1)
    ] = 1000
    row_checksums: Annotated[
        bool, _doc("whether rows of the store get a checksum (pages of SQLite always do)")
    ] = True
    models: Annotated[
        str | None, _doc("folder below which models can be activated; default: that of MODEL")
    ] = None
    relearn: Annotated[
        str | None, _doc("work folder of `latentbandits relearn`, whose runs the page shows")
    ] = None
    keys: Annotated[str | None, _doc("TOML file of API keys; see `latentbandits key`")] = None
    insecure_admin: Annotated[
        bool,
        _doc("without keys, to try things: this machine may do what needs an admin key, such as "
             "activating a model; never behind a proxy"),
    ] = False  # fmt: skip
    audit: Annotated[
        str | None, _doc("file to which every admin action is appended, one JSON line each")
    ] = None
    allowed_hosts: Annotated[
        str, _doc("further Host names to answer to, comma-separated, or *; all with keys if empty")
    ] = ""
    reward_origins: Annotated[
        str,
        _doc("web pages whose scripts may report rewards with a token and read the answer: origins "
             "such as https://shop.example, comma-separated, or *"),
    ] = ""  # fmt: skip
    reward_token_seconds: Annotated[
        float, _time("time for which the reward token of a decision holds", gt=0)
    ] = 3600.0
    play: Annotated[
        bool, _doc("whether /play is served, the page where you are the user: false in production")
    ] = True
    max_body: Annotated[int, _doc("bytes of the largest request body", ge=1024)] = 2**20
    header_timeout: Annotated[float, _time("time for a request's headers to arrive", gt=0)] = 10.0
    body_timeout: Annotated[float, _time("time for a request's body to arrive", gt=0)] = 20.0
    send_timeout: Annotated[
        float, _time("time for a client to read what it was sent, 64 KiB at a time", gt=0)
    ] = 20.0
    max_waiting: Annotated[
        int, _doc("decisions and rewards that may wait for the writer, those of batches too", ge=1)
    ] = 1_000
    request_timeout: Annotated[
        float, _time("time until a request that the store does not answer is given up", gt=0)
    ] = 10.0
    max_connections: Annotated[int, _doc("open connections", ge=1)] = 2000
    drain: Annotated[
        float, _time("time to go on serving after SIGTERM, readiness off", ge=0, le=8)
    ] = 1.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _doc("how much is logged")
    ] = "info"

    def writing(self) -> Writing:
        """Return the settings for writing the store."""
        return Writing(self.synchronous, self.checkpoint_pages, self.row_checksums)

    def check(self) -> None:
        """Raise ValueError if settings are inconsistent."""
        for text in self.policies().values():
            if text != AUTO:
                parse(text)
        super().check()
        if self.keys is None and not is_loopback(self.host):
            raise ValueError(
                f"without API keys the service listens on loopback addresses only, not on "
                f"{self.host!r}: make keys with `latentbandits key` and give their file: --keys"
            )
        if self.keys is not None and self.insecure_admin:
            raise ValueError(
                f"insecure_admin is for a service without keys, and keys is {self.keys!r}: leave "
                "one of them out"
            )


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def gather(
    flags: Mapping[str, Any], config: str | None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Return settings from flags, else the file, else the environment, else the defaults."""
    values = {**_from_environment(os.environ if environment is None else environment)}
    if config is not None:
        values |= _from_file(Path(config))
    values |= {name: value for name, value in flags.items() if value is not None}
    values = {name: _read_number(name, value) for name, value in values.items()}
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        reason, _, name = str(error).removesuffix("`").partition(" - at `$.")
        value = f" {values[name]!r}" if name in values else ""
        raise ValueError(f"the setting {name}{value} is wrong: {reason}") from None
    settings.check()
    return settings


def _read_number(name: str, value: Any) -> Any:
    """Return the number of a text such as .2 or 15m, if the setting is a number or a time."""
    if name not in _NUMBERS or not isinstance(value, str):
        return value
    try:
        number = seconds(value) if name in TIMES else float(value)
    except ValueError:
        wanted = "a time such as 30s, 15m, 2h or 30d" if name in TIMES else "a number"
        raise ValueError(f"the setting {name} must be {wanted}; got {value!r}") from None
    if not math.isfinite(number):
        raise ValueError(f"the setting {name} must be a finite number; got {value!r}")
    return number


_NUMBERS = frozenset(
    name for name, kind in get_type_hints(Settings).items() if float in (kind, *get_args(kind))
)
"""The settings that are numbers with a fraction."""

TIMES = frozenset(
    field.name
    for field in msgspec.structs.fields(Settings)
    if any((meta.extra or {}).get("time") for meta in get_args(field.type)[1:])
)
"""The settings that are times."""


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    known = Settings.__struct_fields__
    values: dict[str, Any] = {}
    for variable, value in environment.items():
        if variable.startswith(PREFIX) and variable != f"{PREFIX}CONFIG":
            name = variable[len(PREFIX) :].lower()
            if name not in known:
                raise ValueError(f"{variable} is not a setting; they are {', '.join(known)}")
            values[name] = value
    return values


def _from_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"cannot read the settings file {path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    unknown = set(values) - set(Settings.__struct_fields__)
    if unknown:
        raise ValueError(f"{path} has the unknown setting {min(unknown)!r}")
    return values
