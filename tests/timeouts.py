"""How long tests wait for an effect that must come.

A limit for the slowest machine, never a pause: tests poll and go on at once. It is shorter than the minute after which
a scheduler with pending pods runs a cycle by itself, so that a change it misses still fails the test.
"""

from __future__ import annotations

TIMEOUT_SECONDS = 50.0
