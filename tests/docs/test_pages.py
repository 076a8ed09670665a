"""The docs are as the code is, and lead somewhere."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / script, *arguments], capture_output=True, text=True, timeout=120
    )


def test_the_generated_pages_are_up_to_date() -> None:
    answer = _run("generate_docs.py", "--check")
    assert answer.returncode == 0, answer.stderr


def test_every_link_leads_somewhere() -> None:
    answer = _run("check_links.py")
    assert answer.returncode == 0, answer.stderr


def test_a_broken_link_would_be_found(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from check_links import broken
    finally:
        sys.path.pop(0)
    (tmp_path / "a.md").write_text("# One thing\n[x](gone.md) [y](#one-thing) [z](#other) `[no](link.md)`\n")
    assert broken(tmp_path) == ["a.md: gone.md", "a.md: #other"]
