// Put before every source file of a Horovod older than 0.28.1 (ci/build_horovod.py), whose gloo neither
// gcc 12 nor the headers of newer kernels compile.
#ifndef HVDPERF_GLOO_BEFORE_0_28_1_H
#define HVDPERF_GLOO_BEFORE_0_28_1_H

// transport/tcp/device.cc uses std::array without its header: horovod/horovod#3923.
#include <array>

// common/linux.cc puts struct ethtool_link_settings before another member of a struct. Since Linux 6.0
// it ends with a flexible array, which must be last; it was of no elements before, and is made that
// again, at the same place and of the same size.
#define link_mode_masks link_mode_masks_of_none[0]; static __u32 link_mode_masks
#include <linux/ethtool.h>
#undef link_mode_masks

#endif
