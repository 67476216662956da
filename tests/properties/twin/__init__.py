"""A second engine: literal, slow, written from the pages of spec/scheduling.md and from nothing else.

Every file follows some sections of the page, and names them; have the page open beside it. Nothing that decides is
shared with `pykai.engine` or `pykai.plugins`: only facts are taken from them (tables of the snapshot, fair shares,
which nodes a class of pods may use at all). There are no columns, no memos and no bounds that save work.

Where docs/compatibility.md lists a difference on purpose, the twin has our rule, as a function or a sentence with
"our rule" in its docstring. Minimum run times, preemption delays and staleness are added by `timed`; neighbours,
volumes, claims and NUMA zones are `rules` that a test adds. Not in the twin: slots of reservation pods.
"""
