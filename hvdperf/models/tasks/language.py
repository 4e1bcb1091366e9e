"""The prediction of the next word: cross-entropy of the logits, averaged over a sequence."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from hvdperf.models.tasks.labelled import Labelled


class Language(Labelled):
    """The language task (models.tasks.Step). A batch is tokens int32 [n, length] and, one word
    later in the stream, targets int32 [n, length]."""

    def signature(self) -> Sequence[tf.TensorSpec]:
        sequence = tf.TensorSpec([None, self._size], tf.int32)
        return sequence, sequence
