"""A hook of MkDocs: pages that lie outside docs/ are on the site too, and every link of the repository holds there.

A link names a file as it lies in the repository, so that it works where the repository is read. Here it leads to
the page made of that file, or, for code, to a copy of the file as text.
"""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "formal/README.md": "formal.md",
}
_SOURCES = {page: source for source, page in PAGES.items()}
_CODE_OR_LINK = re.compile(
    r"(?P<code>^```.*?^```|`[^`\n]*`)|(?P<before>\]\(|\bsrc=\"|\bsrcset=\")(?P<link>[^)\"\s]+)",
    re.DOTALL | re.MULTILINE,
)


def on_config(config: Any) -> Any:
    """Decisions are listed in the nav by their number."""
    names = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    for section in config.nav:
        if "Decisions" in section:
            section["Decisions"] = ["decisions/README.md", *(f"decisions/{name}" for name in names)]
    return config


def on_files(files: Files, *, config: Any) -> Files:
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    for file in files.documentation_pages():
        for name in _named(file.src_uri, file.content_string):
            target = _on_site(name)
            if target.startswith("source/") and target not in files.src_uris:
                if not (ROOT / name).is_file():
                    raise PluginError(
                        f"{file.src_uri} links to {name}, which is not a file of the repository"
                    )
                files.append(File.generated(config, target, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    folder = PurePosixPath(page.file.src_uri).parent

    def led(found: re.Match[str]) -> str:
        if found["code"] or not _is_path(found["link"]):
            return found[0]
        path, mark, anchor = found["link"].partition("#")
        target = _on_site(_in_repository(page.file.src_uri, path))
        return f"{found['before']}{relpath(target, str(folder))}{mark}{anchor}"

    return _CODE_OR_LINK.sub(led, markdown)


def _named(page: str, text: str) -> Iterator[str]:
    """Files of the repository that a page links to."""
    for found in _CODE_OR_LINK.finditer(text):
        if not found["code"] and _is_path(found["link"]):
            yield _in_repository(page, found["link"].partition("#")[0])


def _is_path(link: str) -> bool:
    return not re.match(r"[a-z]+:|#", link)


def _in_repository(page: str, link: str) -> str:
    source = _SOURCES.get(page, f"docs/{page}")
    return normpath(f"{PurePosixPath(source).parent}/{link}")


def _on_site(name: str) -> str:
    """Where the site has that file of the repository: text, so that a browser shows it."""
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return PAGES.get(name, f"source/{name}.txt")
