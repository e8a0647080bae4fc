"""Every setting of the service: one list for flags, the TOML file, the environment and --help."""

from __future__ import annotations

import ipaddress
import math
import os
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from latentbandits.policies.registry import AUTO, parse
from latentbandits.serving.engine.propensities import PropensityMode
from latentbandits.serving.engine.settings import EngineSettings
from latentbandits.serving.records import SwapMode

PREFIX = "LATENTBANDITS_"
_ENGINE = EngineSettings()


def _doc(text: str, **limits: Any) -> Meta:
    return Meta(description=text, **limits)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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
    policy: Annotated[
        str,
        _doc("policy of most sessions, such as mmTS or 'mmTS(catch_all=True)'; auto: the one that "
             "the model's fit recommends, else one that is tuned before it is active, else mmTS"),
    ] = _ENGINE.policy  # fmt: skip
    holdout_policy: Annotated[str, _doc("policy of the sessions that are held out")] = (
        _ENGINE.holdout_policy
    )
    holdout_share: Annotated[float, _doc("share of sessions held out", ge=0, le=1)] = (
        _ENGINE.holdout_share
    )
    groups: Annotated[
        str,
        _doc("further experiment groups, NAME=POLICY:SHARE, separated by semicolons; the flag "
             "--group adds one and can be repeated"),
    ] = _ENGINE.groups  # fmt: skip
    state_names: Annotated[
        str, _doc("names of the latent states for the pages, comma-separated, state 1 first")
    ] = _ENGINE.state_names
    explore: Annotated[
        float,
        _doc("probability of a uniformly random action: propensities are then bounded below, so "
             "that the log can judge other policies", ge=0, le=1),
    ] = _ENGINE.explore  # fmt: skip
    swap: Annotated[
        SwapMode,
        _doc("what a new model does to sessions under way: they keep theirs (pinned), their log is "
             "replayed under it (migrated), or they begin anew (restarted)"),
    ] = _ENGINE.swap  # fmt: skip
    propensity: Annotated[
        PropensityMode,
        _doc("closed forms and counted draws (counted), the policy's own way (policy), or none"),
    ] = _ENGINE.propensity
    propensity_draws: Annotated[int, _doc("draws that are counted", ge=1, le=10_000)] = (
        _ENGINE.propensity_draws
    )
    session_ttl: Annotated[float, _doc("seconds unseen until a session ends", gt=0)] = (
        _ENGINE.session_ttl
    )
    retention: Annotated[
        float, _doc("seconds unseen until an ended session and its log are deleted", gt=0)
    ] = _ENGINE.retention
    cached_sessions: Annotated[int, _doc("sessions whose belief is kept in memory", ge=1)] = (
        _ENGINE.cached_sessions
    )
    cached_megabytes: Annotated[
        float, _doc("memory for the beliefs of these sessions, about", gt=0)
    ] = _ENGINE.cached_megabytes
    snapshot_rounds: Annotated[
        int, _doc("rewards of a session between two snapshots of its belief; 0: none", ge=0)
    ] = _ENGINE.snapshot_rounds
    reward_min: Annotated[
        float | None, _doc("least reward that is taken; default: by the model's family and data")
    ] = _ENGINE.reward_min
    reward_max: Annotated[
        float | None, _doc("greatest reward that is taken; default: by the model's family and data")
    ] = _ENGINE.reward_max
    reward_default: Annotated[
        float | None, _doc("reward of decisions that got none within reward_timeout")
    ] = _ENGINE.reward_default
    reward_timeout: Annotated[
        float | None, _doc("seconds until a decision gets the default reward")
    ] = _ENGINE.reward_timeout
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
    play: Annotated[
        bool, _doc("whether /play is served, the page where you are the user: false in production")
    ] = True
    max_body: Annotated[int, _doc("bytes of the largest request body", ge=1024)] = 2**20
    header_timeout: Annotated[float, _doc("seconds for a request's headers to arrive", gt=0)] = 10.0
    body_timeout: Annotated[float, _doc("seconds for a request's body to arrive", gt=0)] = 20.0
    send_timeout: Annotated[
        float, _doc("seconds for a client to read what it was sent, 64 KiB at a time", gt=0)
    ] = 20.0
    max_waiting: Annotated[
        int, _doc("decisions and rewards that may wait for the writer, those of batches too", ge=1)
    ] = 1_000
    request_timeout: Annotated[
        float, _doc("seconds until a request that the store does not answer is given up", gt=0)
    ] = 10.0
    max_connections: Annotated[int, _doc("open connections", ge=1)] = 2000
    drain: Annotated[
        float, _doc("seconds to go on serving after SIGTERM, readiness off", ge=0, le=8)
    ] = 1.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _doc("how much is logged")
    ] = "info"

    def engine(self) -> EngineSettings:
        """Return the settings that the engine needs."""
        names = EngineSettings.__struct_fields__
        return EngineSettings(**{name: getattr(self, name) for name in names})

    def check(self) -> None:
        """Raise ValueError if settings are inconsistent."""
        engine = self.engine()
        for text in engine.policies().values():
            if text != AUTO:
                parse(text)
        engine.check()
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
    """Return the number of a text such as .2, if the setting is a number with a fraction."""
    if name not in _NUMBERS or not isinstance(value, str):
        return value
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"the setting {name} must be a number; got {value!r}") from None
    if not math.isfinite(number):
        raise ValueError(f"the setting {name} must be a finite number; got {value!r}")
    return number


_NUMBERS = frozenset(
    name for name, kind in get_type_hints(Settings).items() if float in (kind, *get_args(kind))
)
"""The settings that are numbers with a fraction."""


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
