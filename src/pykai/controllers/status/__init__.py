"""Status of PodGroups and Queues: what their pods ask for and hold, summed up the tree.

Everything here is a pure function from objects as they are to the status they should have; a reconcile loop fetches
the objects and writes the difference.
"""
