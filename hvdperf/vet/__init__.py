"""`hvdperf vet` finds the bad node of an allocation: nodes come in; their speeds, and the names of
those that are slow, go out. It never changes a node, and knows no sessions."""
