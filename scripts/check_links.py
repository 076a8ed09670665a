"""Every relative link and anchor in the Markdown of the repository leads somewhere."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img [^>]*src=\"([^\"]+)\"|srcset=\"([^\"]+)\"")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def broken(root: Path = ROOT) -> list[str]:
    """`file: link` for each link that leads nowhere."""
    return [
        f"{page.relative_to(root)}: {link}"
        for page in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/**/*.md")])
        for link in _links(page)
        if not _leads(page, link)
    ]


def _links(page: Path) -> list[str]:
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    found = ["".join(kinds) for kinds in _LINK.findall(text)]
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def _leads(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    if not target.exists():
        return False
    return not anchor or anchor in _anchors(target)


def _anchors(page: Path) -> set[str]:
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def main() -> int:
    found = broken()
    for line in found:
        sys.stderr.write(f"error: broken link in {line}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
