// A file read at the speed of another device (P2 §2.3), over a file in memory, or over any
// other that is faster.
#pragma once

#include <memory>
#include <vector>

#include "storage/async/async_reader.h"
#include "storage/clock.h"
#include "storage/device_profile.h"

namespace hearth {

struct ThrottleOptions {
  DeviceProfile profile;
  // Kind of the core that issues the reads of the first, second, ... queue that is opened (an index
  // of DeviceProfile::core_seconds); the last stands for more. Empty: the fastest.
  std::vector<int> cores;
  const Clock* clock = nullptr;  // null: SteadyClock(); must outlive the file
};

// The queues share one device. A read costs its time from the moment that it is issued, which is
// never before its owner calls Submit, Poll or Wait with a place free. Throws
// Error(kInvalidArgument) for a profile that contradicts itself.
std::unique_ptr<AsyncFile> MakeThrottledFile(std::unique_ptr<AsyncFile> inner,
                                             ThrottleOptions options);

}  // namespace hearth
