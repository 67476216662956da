"""Status controllers: the status of PodGroups and Queues, summed from pods up the tree, and the metrics of queues."""
