"""`python -m tools.figures NAME...`: make figures of the docs, each for light and dark pages.

A name is an experiment of `latentbandits reproduce`, with options after a colon
(`"movielens: --data ml-1m"`), or `card`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from matplotlib.figure import Figure

from latentbandits.cli.main import build_parser
from latentbandits.cli.processes import executor as processes
from latentbandits.cli.progress import Progress
from latentbandits.experiments import EXPERIMENTS
from tools.figures import card, dark

FOLDER = Path(__file__).parents[2] / "docs" / "figures"


def main() -> int:
    """Make each figure that was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.figures", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--out", default=str(FOLDER), help="folder (default docs/figures)")
    arguments = parser.parse_args()
    for text in arguments.names:
        name, _, options = text.partition(":")
        for stem, figure in _figures(name, shlex.split(options)).items():
            save(figure, Path(arguments.out), stem)
    return 0


def _figures(name: str, options: list[str]) -> dict[str, Figure]:
    if name == "card":
        return {"card": card.draw()}
    experiment = next(one for one in EXPERIMENTS if one.name == name)
    asked = build_parser(["reproduce"]).parse_args(["reproduce", name, *options])
    experiment.check(asked)
    with processes(asked.jobs) as executor, Progress(name) as progress:
        return dict(experiment.run(asked, executor, progress).figures)


def save(figure: Figure, folder: Path, stem: str) -> None:
    """Write STEM.png and STEM-dark.png."""
    figure.savefig(folder / f"{stem}.png", dpi=160)
    dark.recolour(figure)
    figure.savefig(folder / f"{stem}-dark.png", dpi=160)


if __name__ == "__main__":
    sys.exit(main())
