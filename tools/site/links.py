"""Check the built site: links and anchors lead somewhere, nothing is loaded from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "srcset"}


@dataclass
class Page(HTMLParser):
    """The ids, links and loaded files of an HTML page."""

    text: str
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        name = _LOADED.get(tag)
        if name in values and values.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(values[name])


def problems(site: Path) -> list[str]:
    """Return a line for every link that leads nowhere and every file from another host."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    results = []
    for path, page in pages.items():
        here = path.relative_to(site)
        if here.name == "404.html":  # its addresses begin at the root of a server
            continue
        for address in page.loaded:
            if urlsplit(address).scheme in ("http", "https") or address.startswith("//"):
                results.append(f"{here} loads {address}")
            elif not _exists(path, address):
                results.append(f"{here} loads {address}, which is not there")
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            if not _exists(path, address):
                results.append(f"{here} links to {address}, which is not there")
                continue
            target = _target(path, address)
            wanted = unquote(parts.fragment)
            if wanted and target in pages and wanted not in pages[target].ids:
                results.append(f"{here} links to {address}, which has no such heading")
    return results


def _target(path: Path, address: str) -> Path:
    own = unquote(urlsplit(address).path)
    return path if not own else Path(path.parent / own).resolve()


def _exists(path: Path, address: str) -> bool:
    if address.startswith("data:"):
        return True
    target = _target(path, address)
    return target.is_file() or (target / "index.html").is_file()
