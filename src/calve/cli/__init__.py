"""What a person types, and what answers."""
