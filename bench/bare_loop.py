"""A plain Horovod training script, as a user would write it, with which the suite is compared.

Run `mpirun -np N python -m bench.bare_loop MODEL IMAGE_SIZE BATCH DATA_DIR CORES`, with a core for
each rank in CORES, such as 0,1. Rank 0 reads numbers of steps from stdin, one per line, and prints
the seconds that the slowest rank took for them. The script uses nothing of hvdperf/.
"""

import os
import sys
import time


def main() -> None:
    model_name, image_size, batch, data_dir, cores = sys.argv[1:]
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    os.sched_setaffinity(0, {int(cores.split(",")[rank])})

    import horovod.tensorflow as hvd
    import tensorflow as tf

    from hvdperf.models import inputs, registry

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    tf.keras.utils.set_random_seed(1)
    model = registry.build(model_name, int(image_size), 10)
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    sources = [getattr(variable, "value", variable) for variable in model.trainable_variables]
    shard = (hvd.rank(), hvd.size())
    request = inputs.Request("cifar10", int(batch), int(image_size), data_dir, shard, seed=1)
    dataset = inputs.open_split(request)

    @tf.function
    def train(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, model(images, training=True)
            )
            loss = tf.reduce_mean(losses)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, sources)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    batches = iter(dataset)
    train(*next(batches))
    hvd.broadcast_variables(sources, root_rank=0)
    if rank == 0:
        print("ready", flush=True)
    while True:
        steps = int(sys.stdin.readline() or 0) if rank == 0 else 0
        steps = int(hvd.broadcast(tf.constant(steps), root_rank=0, name="steps"))
        if steps == 0:
            break
        hvd.allreduce(tf.zeros([]), name="barrier")
        begin = time.perf_counter()
        for _ in range(steps):
            loss = train(*next(batches))
        float(loss)
        seconds = tf.constant(time.perf_counter() - begin)
        slowest = float(hvd.allreduce(seconds, op=hvd.Max, name="slowest"))
        if rank == 0:
            print(slowest, flush=True)


if __name__ == "__main__":
    main()
