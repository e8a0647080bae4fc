"""Features that callers send with their requests: how a successor learns from them.

The service logs the numbers that its model's encoder made of a request. A successor is a regression
on the same numbers, and keeps the encoder: callers go on sending features by the same names.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from latentbandits.learning.attributes.encoding import encode
from latentbandits.learning.backends.opening import DECISION, Opening
from latentbandits.learning.fit_options import FEATURES
from latentbandits.learning.fitting import Fit
from latentbandits.learning.logs.tables import column_names, read_table
from latentbandits.models.attributes.columns import Encoder
from latentbandits.models.attributes.parts import part, with_parts


def encode_log(path: str, options: Opening, model: Any, out: Path) -> str:
    """Encode the features of an older log's rows as the model's numbers; return the new path.

    An export has these numbers already, so its path is returned. Other logs need the columns that
    the model's encoder names.
    """
    there = column_names(path)
    if DECISION in there and FEATURES in there:
        return path
    encoder: Encoder | None = part(model, "encoder")
    needed = (FEATURES,) if encoder is None else encoder.names
    lacking = [name for name in needed if name not in there]
    if lacking:
        raise ValueError(
            f"--with {path} has no column {', '.join(lacking)}: the active model is a regression "
            "on features that callers send, so an older log needs the same columns"
        )
    columns = options.columns_among(there)
    user, action, reward = columns.user, columns.action, columns.reward
    wanted = list(dict.fromkeys([user, action, reward, *needed]))
    table = read_table(path, wanted, text=[user, action]).frame
    numbers = table[FEATURES] if encoder is None else pl.Series(encode(encoder, table).tolist())
    table.select(
        pl.col(user).alias("user"), pl.col(action).alias("action"), pl.col(reward).alias("reward")
    ).with_columns(numbers.cast(pl.List(pl.Float64)).alias(FEATURES)).write_parquet(out)
    return str(out)


def keep_names(result: Fit, current: Any) -> Fit:
    """Return the fit with the current model's encoder in place of its own.

    Raises:
        ValueError: the log's features have another length than the current model takes.
    """
    if result.model.n_features != current.n_features:
        raise ValueError(
            f"callers send {current.n_features} features, the log has {result.model.n_features}: "
            "a successor must take what callers send"
        )
    encoder: Encoder | None = part(current, "encoder")
    settings = result.report["settings"]
    if encoder is not None:
        settings = settings | {
            "features": list(encoder.names), "encoded_features": list(encoder.labels),
        }  # fmt: skip
    return replace(
        result,
        model=with_parts(result.model, encoder=encoder),
        report=result.report | {"settings": settings},
    )
