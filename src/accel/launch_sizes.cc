#include "accel/launch_sizes.h"

#include <limits>

#include "base/error.h"

namespace hearth::accel {

int32_t ToInt(int64_t n) {
  if (n < 0 || n > std::numeric_limits<int32_t>::max()) {
    throw Error(ErrorCode::kInternal, "a kernel", "a size that does not fit 31 bits");
  }
  return static_cast<int32_t>(n);
}

void CheckRoom(const DeviceBuffer& buffer, const Extent& extent) {
  int64_t bytes = 0;
  const bool overflows = extent.rows < 0 || extent.columns < 0 || extent.offset < 0 ||
                         __builtin_mul_overflow(extent.rows, extent.columns, &bytes) ||
                         __builtin_mul_overflow(bytes, extent.element_bytes, &bytes) ||
                         __builtin_add_overflow(bytes, extent.offset, &bytes);
  if (overflows || static_cast<uint64_t>(bytes) > buffer.size_bytes()) {
    throw Error(ErrorCode::kInternal, "a kernel", "a buffer that is too small for its operand");
  }
}

}  // namespace hearth::accel
