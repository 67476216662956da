"""The parts of the documentation that are made from the code: `make docs` writes them, a test compares them."""
