"""The page of a training script that was measured."""
