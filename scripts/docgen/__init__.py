"""The generated pages of the docs: made from the code, so that they cannot drift from it."""
