"""Free functions on arrays; each has a slow, obvious twin in kernels/reference.py."""
