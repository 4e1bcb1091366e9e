"""The process on a node that `hvdperf vet` looks at. It measures what it is told, and compares
nothing: it does not know of other nodes, but of the one that it exchanges bytes with."""
