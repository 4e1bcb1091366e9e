"""Image classifiers. Every builder takes (image_size, classes) and returns a model of logits."""
