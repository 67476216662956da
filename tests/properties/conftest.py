"""How hypothesis looks: the same examples in every run of the suite, and far more of them, by chance, on request.

`pytest tests/properties --hypothesis-profile explore` searches for new counterexamples.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_slow = [HealthCheck.too_slow, HealthCheck.filter_too_much]
settings.register_profile("steady", derandomize=True, suppress_health_check=_slow)
settings.register_profile("explore", max_examples=2000, suppress_health_check=_slow)
settings.load_profile("steady")
