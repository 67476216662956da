"""The operator: deploys the whole system from Config and SchedulingShard objects.

`desired` is a pure function from these objects and the observed cluster to the objects that should exist;
`controller` reconciles them and reports progress in status conditions.
"""
