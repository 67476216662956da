"""The operator: Config and SchedulingShard objects in, the deployments of the whole system out.

`desired` is a pure function from what users ask for and what the cluster is like to the objects that should exist;
`controller` reconciles them and reports progress in status conditions.
"""
