"""Backups and restores as a front asks for them, and the schedules that make, prove and delete them."""
