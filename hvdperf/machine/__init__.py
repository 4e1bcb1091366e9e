"""This host and its stack: reads /proc, nvidia-smi, interpreters and the noise of earlier sessions;
gives cores, GPUs, slots, versions, the environment of ranks, and what other programs took.
Never measures training and never starts a rank."""
