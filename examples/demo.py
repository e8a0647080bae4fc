# %% [markdown]
# # The demonstration
#
# `make demo` runs this script (`python -m examples.demo`): from a log to a verdict, a service with
# visitors, and a better model. The script prints the commands that it runs. Only the visitors are
# simulated. With `--keep` the service goes on running at the end.

# %%
from __future__ import annotations

import argparse
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from tools.drinks import DRINKS, MEAN_STARS, SHARES, stars

from latentbandits.cli.console import Progress
from latentbandits.client import Client, NoAnswerError, ServiceError
from latentbandits.report import drawing
from latentbandits.report.report import Estimate, Table
from latentbandits.report.terminal import open_console, show_tables

LOG = "examples/data/drinks.csv"

# %% [markdown]
# ## The truth
#
# The log is that of a cafe whose customers love coffee, tea or sweet drinks. Since then a fourth
# kind of customer has begun to come, who wants water; the log has none of them. The service never
# sees these numbers, only the stars that a visitor gives to the drink on offer. The numbers are
# made up so that kinds disagree. Where one drink pleases everybody, popularity is hard to beat.
# With a fourth kind that loves juice, which nobody dislikes, one run ended with 3.46 ±0.03 stars
# for popularity and 3.52 ±0.02 for the relearned model.

# %%
NEW_MEAN_STARS = [2.0, 2.2, 2.8, 2.4, 2.0, 2.4, 3.4, 4.6]  # in the order of DRINKS
NEW_SHARE = 0.3
TRUTH = np.vstack([MEAN_STARS, NEW_MEAN_STARS])
KIND_SHARES = [*(share * (1 - NEW_SHARE) for share in SHARES), NEW_SHARE]

# %% [markdown]
# ## The visitors
#
# Visitors come in waves, a hundred at a time. Each is offered eight drinks, one after the other,
# and rates every one.

# %%
ROUNDS, TOGETHER, WAVE = 8, 100, 2_000
MOST_WAVES = 6  # before the new model is activated


def visit(client: Client, wave: str, rng: np.random.Generator) -> None:
    """Send a wave of visitors to the service."""
    with Progress("demo") as progress:
        progress.start(f"{wave}, visitors over HTTP", WAVE)
        for start in range(0, WAVE, TOGETHER):
            names = [f"{wave}, visitor {start + i}" for i in range(TOGETHER)]
            kinds = rng.choice(len(TRUTH), size=TOGETHER, p=KIND_SHARES)
            for _ in range(ROUNDS):
                offer_and_rate(client, names, kinds, rng)
            progress.advance(TOGETHER)


def offer_and_rate(
    client: Client, names: list[str], kinds: np.ndarray, rng: np.random.Generator
) -> None:
    """Ask for a drink for each visitor, and report the stars that it gets."""
    answers = client.decide_many([{"session": name} for name in names])
    rewards = []
    for kind, answer in zip(kinds, answers, strict=True):
        if isinstance(answer, ServiceError):
            raise answer
        mean = TRUTH[kind, DRINKS.index(answer.action)]
        rewards.append((answer.decision_id, stars(mean, rng)))
    client.reward_many(rewards)


# %% [markdown]
# ## The commands
#
# `mmTS` draws its choices, and `--explore` makes one in five uniformly random: so the log can judge
# other models. `catch_all` allows for visitors of a kind that the model does not know. For the last
# wave the service is started again on the same store, as an experiment: one visitor in five gets
# the drink that is best on average, and one in five a policy that learns each visitor from scratch.

# %%
OUT = Path("out/demo")
STORE = f"sqlite:{OUT}/sessions.sqlite"
POLICY = "--policy 'mmTS(catch_all=True)'"
EXPERIMENT = "--holdout-share 0.2 --holdout-policy popularity --group scratch=TS:0.2"


def run(text: str) -> None:
    """Print a command and run it."""
    subprocess.run(words_of(text), check=True)


def words_of(text: str) -> list[str]:
    """Print a command and return its words, for the Python that runs this script."""
    print(f"\n$ {text}", flush=True)
    return [sys.executable, "-m", *shlex.split(text)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def served(port: int, options: str = "", keep: bool = False) -> Iterator[Client]:
    """Run the service and yield a client; at the end stop it, or with `keep` wait for Ctrl-C."""
    words = words_of(
        f"latentbandits serve {OUT}/models/first --store {STORE} --port {port} {POLICY} "
        f"--explore 0.2 --relearn {OUT}/relearn --insecure-admin {options}".rstrip()
    )
    url, log = f"http://127.0.0.1:{port}", OUT / "service.log"
    with log.open("ab") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file)
    try:
        with Client(url, timeout=30.0, retries=10, deadline=60.0) as client:
            while True:
                try:
                    client.models()
                    break
                except NoAnswerError:  # a busy machine takes its time
                    if process.poll() is not None:
                        sys.exit(f"the service did not start: {log.read_text()[-500:]}")
            print(f"Watch it at {url}/", flush=True)
            yield client
            if keep:
                print(f"The service is still running at {url}/; Ctrl-C ends it.", flush=True)
                process.wait()
    finally:
        process.terminate()
        process.wait(20)


# %% [markdown]
# ## The result
#
# All numbers come from the service's own log. The error of a mean is computed over visitors.


# %%
def groups(log: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the decisions of each group of visitors, by the name that is shown."""
    group, last = pl.col("group"), pl.col("session").str.starts_with("last")
    of_first_model = pl.col("model") == log["model"][0]
    decisions = {
        "popularity": log.filter(last, group == "holdout"),
        "from scratch": log.filter(last, group == "scratch"),
        "latentbandits, model of the log": log.filter(group == "policy", of_first_model),
        "latentbandits, relearned": log.filter(group == "policy", ~of_first_model),
    }
    return {name: rows for name, rows in decisions.items() if len(rows)}


def show(log: pl.DataFrame) -> None:
    """Print the table and write the picture."""
    show_tables([table(log)], open_console())
    draw(log).savefig(OUT / "demo.png", dpi=160)
    print(f"picture in {OUT}/demo.png")


def table(log: pl.DataFrame) -> Table:
    """Return the number of visitors of each group, and the mean stars that they gave."""
    rows: list[tuple[str, ...]] = [
        (name, f"{rows['session'].n_unique():,}", str(mean_stars(rows)))
        for name, rows in groups(log).items()
    ]
    return Table("What visitors got", ("", "visitors", "stars a drink"), rows)


def draw(log: pl.DataFrame) -> Figure:
    """Draw the mean stars of each group, drink by drink."""
    figure = drawing.new_figure(3.4, "A new visitor, drink by drink")
    figure.set_size_inches(4.8, 3.4)  # readable on a phone
    axes = figure.subplots()
    drinks = range(1, ROUNDS + 1)
    colours = (drawing.GREY, drawing.BLUE, drawing.GREEN, drawing.ORANGE)
    for (name, rows), colour in zip(groups(log).items(), colours, strict=False):
        points = [mean_stars(rows.filter(pl.col("round") == drink)) for drink in drinks]
        drawing.draw_line(
            axes,
            drinks,
            points,
            "-",
            colour,
            name.replace(", ", ",\n").replace("model of", "model\nof"),
        )
    drawing.plain(axes, x="drink", y="stars, mean over visitors")
    drawing.label_lines(axes)
    return figure


def mean_stars(log: pl.DataFrame) -> Estimate:
    """Return the mean stars of a drink, with the error over visitors."""
    visitors = log.group_by("session", maintain_order=True).agg(pl.mean("reward"))
    return Estimate.from_values(visitors["reward"].to_numpy())


# %% [markdown]
# ## From the log to the table


# %%
def main(keep: bool) -> None:
    rng, port = np.random.default_rng(0), free_port()
    shutil.rmtree(OUT, ignore_errors=True)
    columns = "--user customer --action drink --reward stars"
    run(f"latentbandits fit {LOG} {columns} --out {OUT}/models/first")
    with served(port) as client:
        first = client.models().active
        for wave in range(1, MOST_WAVES + 1):
            visit(client, f"wave {wave}", rng)
            run(
                f"latentbandits relearn --service http://127.0.0.1:{port} --models {OUT}/models "
                f"--work {OUT}/relearn {POLICY} --held-out 0.5"
            )
            if client.models().active != first:
                break
    with served(port, EXPERIMENT, keep) as client:
        visit(client, "last wave", rng)
        run(f"latentbandits export --store {STORE} --out {OUT}/log.parquet")
        show(pl.read_parquet(OUT / "log.parquet"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m examples.demo")
    parser.add_argument("--keep", action="store_true", help="leave the service running at the end")
    try:
        main(parser.parse_args().keep)
    except KeyboardInterrupt:
        sys.exit(130)
