"""Input of one's own: the samples that a network's `data` function yields.

A pipeline that was written without a shard yields all samples. Dividing its result would have each
of n replicas prepare all samples and use an n-th of them. So the division is put into the
pipeline's graph, behind the operations that read.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hvdperf.models import contract, registry
from hvdperf.models.inputs import Request
from hvdperf.models.registry import Shard


def samples(network: str, size: int, shard: Shard, seed: int) -> Any:
    """Return the tf.data.Dataset of a shard's single samples (inputs, label), as the network's
    `data` function makes it.

    seed: of what the function draws at random without a seed of its own, such as the order of a
    shuffle, so that all strategies read the same samples in the same order. Raises BadNetwork, and
    whatever the function raises.
    """
    named = registry.network(network).data
    function = registry.function(named)
    tf.keras.utils.set_random_seed(seed + shard.index)
    divides = contract.takes_the_shard(function)
    dataset = function(size, shard) if divides else function(size)
    contract.check_samples(dataset)
    if divides or shard.count == 1:
        return dataset
    divided = divided_at_the_source(dataset, shard)
    if divided is None:
        raise contract.not_divided(named.rpartition(":")[2])
    return divided


def batch_signature(network: str, size: int) -> tuple[Any, Any]:
    """Return tf.TensorSpecs of a batch (inputs, labels), whose number of samples is open."""
    spec = samples(network, size, Shard(0, 1), seed=0).element_spec
    inputs, labels = tf.nest.map_structure(
        lambda leaf: tf.TensorSpec([None, *leaf.shape], leaf.dtype), spec
    )
    return inputs, labels


def train_dataset(files: None, request: Request) -> tf.data.Dataset:
    """Return an endless dataset of batches of one shard, in the order in which the network's `data`
    function yields its samples."""
    dataset = samples(request.dataset, request.size, Shard(*request.shard), request.seed)
    if request.numbered:
        dataset = dataset.enumerate()
    return dataset.repeat().batch(request.batch, drop_remainder=True).prefetch(2)


# Operations that read samples, one a record or a row of a tensor.
_SOURCES = {
    "RangeDataset",
    "TensorSliceDataset",
    "FixedLengthRecordDatasetV2",
    "TextLineDataset",
    "TFRecordDataset",
    "TFRecordDatasetV2",
}
# Operations that treat each sample on its own, so that it does not matter where they are divided.
_BY_SAMPLE = {
    "CacheDatasetV2",
    "FilterDataset",
    "MapDataset",
    "ModelDataset",
    "OptionsDataset",
    "ParallelMapDatasetV2",
    "PrefetchDataset",
    "ShuffleDatasetV3",
    "ZipDataset",
}


def divided_at_the_source(dataset: Any, shard: Shard) -> Any | None:
    """Return the tf.data.Dataset of one shard, of which each sample is prepared by one replica
    only. Return None if the pipeline has an operation with which a division does not commute."""
    try:
        variant = tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(dataset),
            # Random numbers are drawn by each replica for itself.
            external_state_policy=tf.data.experimental.ExternalStatePolicy.IGNORE.value,
        )
    except (tf.errors.OpError, ValueError):
        return None  # as for samples in memory that are too large for a graph
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(variant.numpy())
    if not _divide(graph, shard):
        return None
    changed = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    return tf.data.experimental.from_variant(changed, dataset.element_spec)


def _divide(graph: Any, shard: Shard) -> bool:
    """Put a division behind every source of a GraphDef. Return False, with the graph unchanged, if
    that is not possible."""
    datasets = {node.name: node for node in graph.node if "Dataset" in node.op}
    sources = [
        node
        for node in datasets.values()
        if not any(_node_of(name) in datasets for name in node.input)
    ]
    others = [node for node in datasets.values() if node not in sources]
    if not all(node.op in _SOURCES for node in sources):
        return False
    if not all(node.op in _BY_SAMPLE for node in others):
        return False
    for source in sources:
        divided = f"{source.name}/shard"
        for node in graph.node:
            for place, name in enumerate(node.input):
                if _node_of(name) == source.name:
                    node.input[place] = divided
        _add_shard(graph, source, divided, shard)
    return True


def _add_shard(graph: Any, source: Any, name: str, shard: Shard) -> None:
    inputs = [source.name]
    for part, value in (("count", shard.count), ("index", shard.index)):
        constant = graph.node.add(name=f"{name}/{part}", op="Const")
        constant.attr["dtype"].type = tf.int64.as_datatype_enum
        constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int64))
        inputs.append(constant.name)
    added = graph.node.add(name=name, op="ShardDataset", input=inputs)
    for kind, fallback in (("output_types", "Toutput_types"), ("output_shapes", "output_shapes")):
        known = next((each for each in (kind, fallback) if each in source.attr), None)
        if known is not None:
            added.attr[kind].CopyFrom(source.attr[known])
    if "output_types" not in added.attr:  # a reader of records, which are strings
        added.attr["output_types"].list.type.append(tf.string.as_datatype_enum)
        added.attr["output_shapes"].list.shape.add()


def _node_of(name: str) -> str:
    """Return the name of the node of an input such as `^node` or `node:1`."""
    return name.lstrip("^").partition(":")[0]
