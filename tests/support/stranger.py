"""What an executor sees of the program that started it."""

import json
import os
from pathlib import Path


def look(folder: str) -> str:
    """Its user, whether it may look into a folder of the test, and where it runs."""
    try:
        sees = any(Path(folder).iterdir())
    except OSError:
        sees = False
    return json.dumps({"receipt": f"{os.geteuid()} {sees} {Path.cwd()}"})
