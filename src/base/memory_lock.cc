#include "base/memory_lock.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/units.h"

namespace hearth {

std::string LockMemory() {
  if (mlockall(MCL_CURRENT | MCL_ONFAULT) == 0) return "";
  const int error = errno;
  rlimit limit = {};
  const bool is_limited = (error == ENOMEM || error == EPERM) &&
                          getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (!is_limited) return std::strerror(error);
  return "this user may lock " + FormatSize(limit.rlim_cur) + " (ulimit -l)";
}

uint64_t LockedBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string field; status >> field;) {
    uint64_t kib = 0;
    if (field == "VmLck:" && status >> kib) return kib << 10;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

}  // namespace hearth
