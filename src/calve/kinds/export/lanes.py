"""How lanes and needs name what an export reaches. A lane has one circuit breaker."""

CATALOG = "catalog:"
SOURCE = "source:"
