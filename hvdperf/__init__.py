"""A performance regression suite for Horovod and TensorFlow, driven by pytest.

The suite takes pytest's command line, measures training in other processes, and writes verdicts and
pages. Only worker/ imports TensorFlow and Horovod; tests/test_house.py says which subpackage
("room") may import which. The modules beside the rooms serve all rooms and import none, except
__main__.py.
"""
