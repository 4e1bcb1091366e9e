"""A rank that runs a training script of the user's, and what is put into the processes of one."""
