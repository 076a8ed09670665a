"""Object storage: one port (`storage`), its implementations (`local`, `s3`, `azure`, `gcs`), and how they are reached.

`storage.Storage` serves every location by its full URI; `remote` is what the clouds have in common;
`credentials` finds keys, region, endpoint and certificates; `errors` is the one place that classifies what a storage answers. To add another cloud,
write its module beside `s3`, name its schemes in `uri` and its class in `storage`, and have its tests
inherit `calve.testing.contracts.objects`. Must not be here: Iceberg, ClickHouse, Spark, the store.
"""
