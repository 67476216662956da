"""A second engine: literal, slow, written from the description of the behaviour and from nothing else.

Every file follows some sections of the description, and names them. Nothing is imported from `pykai.engine`,
`pykai.plugins` and `pykai.kernels` (a test checks it): the twin reads the tables of the snapshot and works out the rest
itself, fair shares in exact fractions (`shares`) and the nodes a pod may use (`predicates`) included. There are no
columns, no memos and no bounds that save work.

Where docs/compatibility.md lists a difference on purpose, the twin has our rule, as a function or a sentence with
"our rule" in its docstring. Minimum run times, preemption delays and staleness are added by `timed`; neighbours,
volumes, claims and NUMA zones are `rules` that a test adds. Not in the twin: slots of reservation pods.
"""
