"""Reading an export back: its rows in the lake compared with the source, by value."""
