"""How long tests wait for what must come.

It is a limit for the slowest machine and never a pause: who waits looks again and again, and goes on at once. It is
shorter than the minute after which a scheduler with waiting pods looks again by itself, so that a change it should have
heeded, and did not, still fails the test.
"""

from __future__ import annotations

PATIENCE_SECONDS = 50.0
