// How fast a device is, for planning (P1 §6.3: what its cost model needs to know of a GPU).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "accel/device.h"
#include "accel/matrix_kernels.h"
#include "accel/vector_kernels.h"

namespace hearth::accel {

// One measurement of each. Bytes and multiply-adds are of Q4_0 weights where they are multiplied.
struct DeviceRates {
  double read_bytes_per_s = 0;      // memory of the device, nothing computed
  double matvec_bytes_per_s = 0;    // weights times one token
  double matmul_macs_per_s = 0;     // weights times DeviceProbe::kTokens tokens
  double upload_bytes_per_s = 0;    // from memory of the host
  double download_bytes_per_s = 0;  // to it
  double launch_seconds = 0;        // from launching a kernel that adds one number to its end
};

// One thread at a time; must not outlive the device.
class DeviceProbe {
 public:
  static constexpr int64_t kColumns = 4096;  // of a 7B model
  static constexpr int64_t kTokens = 128;

  // Reads and copies `bytes` bytes, at least 1 MiB, and at most 4 GiB, a quarter of the device's
  // memory and what one buffer may have. Takes as much memory of the host, and as much of the
  // device and some MiB more. Throws what Device::MakeBuffer and MakeKernel do.
  DeviceProbe(Device& device, uint64_t bytes);

  // Measures each rate for about `seconds`, and at least once. Throws Error(kIo).
  DeviceRates Measure(double seconds);

 private:
  // Returns how often per second `work` can be launched and waited for.
  double TimesPerSecond(double seconds, const std::function<void()>& work);

  const int64_t bytes_;
  const int64_t rows_;  // of the matrix that fills a buffer
  const std::unique_ptr<DeviceQueue> queue_;
  const std::unique_ptr<DeviceKernel> read_;
  MatrixKernels matrix_;
  VectorKernels vectors_;
  const std::unique_ptr<DeviceBuffer> weights_, x_, out_;
  std::vector<std::byte> host_;
};

}  // namespace hearth::accel
