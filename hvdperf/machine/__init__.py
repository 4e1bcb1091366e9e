"""This host and its installed stack.

The package reads /proc, nvidia-smi, interpreters and the noise records of earlier sessions. It
returns cores, GPUs, slots, versions, the environment of ranks, and the CPU time that other programs
took. It never measures training and never starts a rank.
"""
