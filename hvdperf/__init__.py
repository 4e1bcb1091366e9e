"""Takes pytest's command line, measures training in other processes, writes verdicts and pages.
Only worker/ imports TensorFlow and Horovod; tests/test_house.py says which room may import which.
Modules beside the rooms serve all of them and import none, save __main__.py."""
