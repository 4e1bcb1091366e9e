"""Explains where time and memory went: terms of a step, of a start and of a training, stragglers,
speedups, causes. Arithmetic on records; it judges nothing and launches nothing."""
