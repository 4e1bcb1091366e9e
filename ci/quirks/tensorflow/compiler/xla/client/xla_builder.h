// In the place of a header that TensorFlow 2.19 and later lack. With an older one, TensorFlow's own
// comes first. Horovod's xla_mpi_ops.cc uses nothing of it without GPUs: see
// ci/quirks/xla_since_tensorflow_2_19.h. With GPUs it uses what the header was moved to, and an alias.
#if HAVE_GPU
#include "absl/status/statusor.h"
#include "xla/hlo/builder/xla_builder.h"

namespace xla {
template <typename T>
using StatusOr = absl::StatusOr<T>;
}

#if TENSORFLOW_VERSION >= 2020000000
#include "absl/log/internal/log_message.h"

// abseil declares that its library has these, but TensorFlow's libraries do not export them.
template absl::log_internal::LogMessage& absl::log_internal::LogMessage::operator<<(const int&);
template absl::log_internal::LogMessage& absl::log_internal::LogMessage::operator<<(const float&);
#endif

#if TENSORFLOW_VERSION >= 2021000000
#include "xla/stream_executor/stream.h"

// mpi_ops.cc, which is linked with this, calls this function, which TensorFlow no longer exports.
namespace stream_executor {
namespace gpu {
void* AsGpuStreamValue(Stream* stream) { return stream->platform_specific_handle().stream; }
}  // namespace gpu
}  // namespace stream_executor
#endif
#endif
