"""Kubernetes objects as msgspec structs (only the fields we read), quantities, names of labels and annotations."""
