"""Verbs are imported on first use, by threads: the first of each may come at the same moment."""

import subprocess
import sys

CODE = """
import threading
from calve.app.desk import load_outside, _OUTSIDE
from importlib import import_module

start, failed = threading.Barrier(len(_OUTSIDE)), []

def first(name):
    start.wait()
    try:
        load_outside()
        import_module(name)
    except ImportError as error:
        failed.append(str(error))

threads = [threading.Thread(target=first, args=(name,)) for name in _OUTSIDE]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failed, failed
"""


def test_threads_that_are_the_first_to_ask_outside_do_not_meet_half_a_module() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
