"""`calve doctor`: probes every part end to end; each finding with its remedy.

Belongs here: looking, and saying what was found. Must not be here: fixing; a finding names the
command or the place that does.
"""

from calve.app.doctor.examine import examine
from calve.app.doctor.finding import Finding

__all__ = ["Finding", "examine"]
