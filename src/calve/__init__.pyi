from calve.client.client import Client
from calve.model.errors import CalveError
from calve.model.process import Event, Process
from calve.model.states import ProcessState

__version__: str
__all__ = ["CalveError", "Client", "Event", "Process", "ProcessState", "__version__"]
