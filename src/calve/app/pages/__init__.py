"""What pages show: read from the store and from the last looks outside, never by asking while somebody waits."""
