"""Counts the operations in a traced step by which Horovod moves data between ranks."""

from collections.abc import Iterable
from typing import Any, Callable

import tensorflow as tf

# Operations of Horovod that ask for a rank or a size, and move nothing.
_MOVE_NOTHING = (
    "HorovodLocalRank",
    "HorovodLocalSize",
    "HorovodProcessSetIncluded",
    "HorovodRank",
    "HorovodSize",
)


class Exchanges:
    """Tells the operations that reduce gradients from all others, such as those of a batch
    normalization that is synchronised over the ranks.

    others: the number of the others in the graph that has most of them.
    """

    def __init__(self) -> None:
        self.others = 0
        self._of_gradients: set[str] = set()

    def reducing(self, reduce: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that reduces gradients, and whose operations are known as such."""

        def watched(*arguments: Any, **keywords: Any) -> Any:
            graph = tf.compat.v1.get_default_graph()
            known = len(graph.get_operations())
            reduced = reduce(*arguments, **keywords)
            self._of_gradients |= {made.name for made in graph.get_operations()[known:]}
            return reduced

        return watched

    def count(self, graph: Any) -> None:
        """Count the other operations of a step's graph, and forget what was watched."""
        others = [made for made in graph.get_operations() if made.name not in self._of_gradients]
        self.others = max(self.others, _moving(others))
        self._of_gradients.clear()


def _moving(operations: Iterable[Any]) -> int:
    """Return how many of the operations move data, those in the functions that they call included,
    each as often as it is called."""
    found = 0
    for made in operations:
        found += made.type.startswith("Horovod") and made.type not in _MOVE_NOTHING
        for graph in _called(made):
            found += _moving(graph.get_operations())
    return found


def _called(operation: Any) -> Iterable[Any]:
    """Yield the graphs of the functions that an operation calls, such as the branches of a
    condition."""
    functions = operation.graph._functions
    for value in operation.node_def.attr.values():
        for each in (value.func, *value.list.func):
            if each.name in functions:
                yield functions[each.name].graph
