"""Generate the types of the TypeScript client anew: python -m tools.typescript (needs npm)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec

from latentbandits.serving.http.pages import document

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Write the OpenAPI document of today, and make the types from it."""
    described = ROOT / "out" / "openapi.json"
    described.parent.mkdir(exist_ok=True)
    described.write_bytes(msgspec.json.encode(document()))
    folder = ROOT / "clients" / "typescript"
    for words in (["install", "--no-audit", "--no-fund", "--ignore-scripts"], ["run", "generate"]):
        subprocess.run(["npm", *words], cwd=folder, check=True)


if __name__ == "__main__":
    main()
