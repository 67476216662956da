"""The pod grouper: finds the workload of every pod, writes its PodGroup and annotates the pod.

The rules are pure functions: `rules.workload_kinds` has one row per kind of workload, `grouping` finds the workload of
a pod and applies its rule. `grouper.PodGrouper` runs them for the watched pods and writes the results. See
docs/concepts/grouping.md.
"""
