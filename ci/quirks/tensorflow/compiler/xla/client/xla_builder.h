// In the place of a header that TensorFlow 2.19 and later lack. With an older one, TensorFlow's own
// comes first. See ci/quirks/xla_since_tensorflow_2_19.h.
