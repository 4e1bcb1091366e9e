"""Errors of a network of one's own: the user's word, without TensorFlow's places in the graph."""

from __future__ import annotations

import pytest
import tensorflow as tf

from hvdperf.worker.session_link import in_words, is_of_user
from tests.support.rank_configs import rank_config


def checked(number: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.debugging.Assert(number < 1, ["truncated record", number])]):
        return tf.identity(number)


def test_an_error_within_a_pipeline_is_told_by_what_the_user_wrote() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        list(tf.data.Dataset.range(3).map(checked))
    said = in_words(raised.value)
    assert "truncated record" in said
    assert "{{" not in said
    assert "Iterator::" not in said


def test_an_error_within_a_python_function_has_no_traceback() -> None:
    def broken(number: int) -> int:
        raise ZeroDivisionError("of mine")

    data = tf.data.Dataset.range(3).map(lambda i: tf.numpy_function(broken, [i], tf.int64))
    with pytest.raises(tf.errors.UnknownError) as raised:
        list(data)
    said = in_words(raised.value)
    assert said.endswith("ZeroDivisionError: of mine")
    assert "Traceback" not in said


def test_a_label_that_is_out_of_range_is_told_with_the_number_of_classes() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        tf.nn.sparse_softmax_cross_entropy_with_logits([12], tf.zeros([1, 10]))
    assert in_words(raised.value) == "label 12 of 10 classes"


def test_an_error_of_the_suites_own_networks_is_not_the_users() -> None:
    error = tf.errors.InvalidArgumentError(None, None, "a value")
    own = rank_config(own_network="mine.py", dataset="cifar10", model="mine")
    assert is_of_user(error, own)
    assert not is_of_user(error, own._replace(own_network=""))
    horovod = tf.errors.InvalidArgumentError(None, None, "HorovodAllreduce: mismatched shapes")
    assert not is_of_user(horovod, own)
    assert not is_of_user(RuntimeError("Horovod has been shut down"), own)
