"""Admission: pure mutate and validate functions, and the TLS server around them."""
