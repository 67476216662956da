"""The pod grouper: finds the workload behind every pod, writes its PodGroup and adds it (docs/concepts/grouping.md).

The rules are pure functions: `rules.kinds` has one row per kind of workload, `grouping` finds the workload of a pod and
applies its rule. `grouper.PodGrouper` runs them for the watched pods and writes the results.
"""
