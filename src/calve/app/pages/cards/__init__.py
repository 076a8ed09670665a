"""What a person must do something about, a card for each: what it is about in a file of its own."""
