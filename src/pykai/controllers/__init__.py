"""Controllers: a pure desired(...) each, plus one shared reconcile loop."""
