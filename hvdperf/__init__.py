"""A performance regression suite for Horovod and TensorFlow, driven by pytest.

The suite takes pytest's command line, measures training in other processes, and writes verdicts and
pages. Only worker/ and models/ import TensorFlow and Horovod; tests/test_house.py says which
subpackage may import which. All subpackages may import the modules beside them, which import no
subpackage, except __main__.py.
"""
