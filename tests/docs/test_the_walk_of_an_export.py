import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "walk.py"
MOST = 175  # modules. The goal is 110: lower this with every merge of modules


def test_a_reader_of_one_export_meets_few_modules() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    modules = done.stdout.split()
    assert {"calve.cli.export", "calve.control.decide", "calve.spark.executor"} <= set(modules)
    assert len(modules) <= MOST, f"{len(modules)} modules: {' '.join(modules)}"
