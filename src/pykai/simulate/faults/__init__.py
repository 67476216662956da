"""Fault injection: random histories of the whole product, one per seed, checked while they run and at rest."""
