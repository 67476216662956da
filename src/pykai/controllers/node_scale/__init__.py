"""Node scale adjuster: makes pending GPU shares visible to a cluster autoscaler, which does not know fractions.

For pods that wait for a part of a GPU it keeps ordinary pods that ask for whole GPUs ("scaling pods"). They do
nothing: that they cannot be scheduled makes the autoscaler add nodes, and they go when the pods they stand for are
placed.
"""
