"""`calve.toml`: where it is found, what may stand in it, what each value is and where it came from.

Belongs here: reading and checking the configuration, and explaining it. Must not be here:
building anything from it (that is `app.wiring`).
"""

from calve.app.config.load import load_config
from calve.app.config.values import Config, ServeConfig, Setting, SourceConfig, SparkConfig

__all__ = ["Config", "ServeConfig", "Setting", "SourceConfig", "SparkConfig", "load_config"]
