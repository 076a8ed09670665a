"""What a process does: one folder for each kind, with plan, task, publish and undo."""
