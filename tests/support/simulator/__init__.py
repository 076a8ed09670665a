"""A simulator of whole installations: several workers with Calve's own code over modelled services, on a virtual
clock, all of it decided by one seed.

Real: the control plane, the SQL store, the kinds, publishing to Iceberg. Modelled, each behind the port that the
product already has: ClickHouse (`clickhouse`), the catalog (`catalog`), object storage (`objects`), Spark (`spark`).
Nothing here knows the product's decisions: what must hold is said once, in `check`, of what the services saw.
"""
