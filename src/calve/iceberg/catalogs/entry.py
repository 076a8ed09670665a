"""The keys of a catalog's entry in the configuration that are ours; all others are the catalog client's."""

RECEIPTS = "calve.receipts"  # where receipts go, for buckets that take nothing but tables
SORT_ORDER_IDS = "calve.sort-order-ids"  # whether sorted files say so; see `tables.tells_sort_orders`
