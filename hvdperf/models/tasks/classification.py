"""The choice of the class that an image shows: cross-entropy of the logits."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from hvdperf.models.tasks.labelled import Labelled


class Classification(Labelled):
    """The task (models.tasks.Step). A batch is images float32 [n, s, s, 3] and labels int32 [n]."""

    def signature(self) -> Sequence[tf.TensorSpec]:
        images = tf.TensorSpec([None, self._size, self._size, 3], tf.float32)
        return images, tf.TensorSpec([None], tf.int32)
