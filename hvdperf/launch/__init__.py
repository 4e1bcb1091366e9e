"""Launches an arm as a group of processes, sends orders to its ranks, and ends the group.

It takes an arm and slots, and gives replies or the first cause of a failure. It never judges. In
the session's process only this package opens sockets.
"""
