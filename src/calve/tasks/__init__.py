"""What tasks on executors do alike, whatever the kind: the order that is shipped, the receipt left behind."""
