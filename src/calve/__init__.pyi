from calve.client.client import Client
from calve.client.watch import Reset
from calve.model.errors import CalveError
from calve.model.process import Event, Process
from calve.model.states import ProcessState

__version__: str
__all__ = ["CalveError", "Client", "Event", "Process", "ProcessState", "Reset", "__version__"]
