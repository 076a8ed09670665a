from calve.data_source.session import doctor as doctor
from calve.data_source.session import run as run
