// Put before every source file of a Horovod that is built with TensorFlow 2.19 or later
// (ci/build_horovod.py). Horovod's xla_mpi_ops.cc includes headers of XLA, which include what the
// package of TensorFlow does not have (llvm/ADT/ArrayRef.h, highwayhash/arch_specific.h). Without GPUs
// it uses nothing of them. The guards say that they have been included.
#if !HAVE_GPU
#define TENSORFLOW_COMPILER_TF2XLA_XLA_OP_KERNEL_H_
#define TENSORFLOW_COMPILER_TF2XLA_XLA_OP_REGISTRY_H_
#define XLA_SHAPE_H_
#endif
