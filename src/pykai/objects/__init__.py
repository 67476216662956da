"""Kubernetes objects as msgspec structs with the fields pykai reads; quantities; names of labels and annotations."""
