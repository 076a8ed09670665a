"""What the tasks of all kinds have in common: the order that is shipped, the receipt left behind."""
