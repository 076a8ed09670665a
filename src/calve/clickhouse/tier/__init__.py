"""What keeps one table in two places: the view over hot and cold rows, and where partitions go that leave the table."""
