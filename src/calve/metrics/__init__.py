"""What a program tells of itself to others: the metrics that Prometheus scrapes, and what a line of the log is about.

Meters are decorators around the ports (wrappers), so the control plane knows nothing of them. Facts of the store
come from servers only (collector): every worker would tell the same, and the sums would be wrong.

Belongs here: names, labels and their bounds, everything about Prometheus. Must not be here: rights, HTTP of the
server, a decision of any kind.
"""
