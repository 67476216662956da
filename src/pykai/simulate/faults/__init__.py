"""The fault campaign: random histories of the whole product, by seed, checked while they run and at rest."""
