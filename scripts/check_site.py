"""The site as it was built: every link, anchor and picture is there, and nothing is loaded from elsewhere."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
_LOADS = {"script": "src", "img": "src", "source": "srcset", "iframe": "src", "link": "href"}
_MARKDOWN = re.compile(r"\]\([\w./#-]+\)|^\s*\|.+\|$|^- |\*\*\w", re.MULTILINE)


class Page(HTMLParser):
    """What a page points to, what it can be pointed at by, and its text outside of code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = {""}
        self.words: list[str] = []
        self._silent = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif given.get(_LOADS.get(tag, "")) and given.get("rel") not in ("canonical", "prev", "next"):
            self.loads.add(given[_LOADS[tag]])
        self._silent += tag in ("code", "script", "style", "pre")

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("code", "script", "style", "pre")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.words.append(data)


def wrong(site: Path) -> list[str]:
    """`page: what` for each thing that a reader would trip over."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links are absolute: it answers at any depth
        name = path.relative_to(site)
        found += [f"{name}: loads {link}" for link in page.loads if urlsplit(link).netloc]
        found += [
            f"{name}: no {link}"
            for link in sorted(page.links | page.loads)
            if not urlsplit(link).scheme and not _leads(path, link, pages)
        ]
        found += [f"{name}: is Markdown still: {text!r}" for text in _MARKDOWN.findall("".join(page.words))]
    return found


def _leads(path: Path, link: str, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if target not in pages:
        return target.is_file()
    return unquote(parts.fragment) in pages[target].anchors


def main() -> int:
    site = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "site"
    found = wrong(site)
    for line in found:
        sys.stderr.write(f"error: {line}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
