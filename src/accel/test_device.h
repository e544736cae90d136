// The device of tests: the first one that there is (PoCL's, where nothing else is installed), or
// that of HEARTH_TEST_DEVICE, a number of `hearth devices`.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "accel/devices.h"

namespace hearth::accel::testing {

inline size_t TestDeviceIndex() {
  const char* number = std::getenv("HEARTH_TEST_DEVICE");
  return number == nullptr ? 0 : std::stoul(number);
}

// A cache of programs beside the other caches of tests; empty where there is none.
inline std::string TestProgramsFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  return cache == nullptr ? "" : std::string(cache) + "/hearth/opencl";
}

// Opened once per program.
inline Device& TestDevice() {
  static Device* const kDevice = [] {
    return OpenDevice(TestDeviceIndex(), {.cache_folder = TestProgramsFolder()}).release();
  }();
  return *kDevice;
}

// At the top of a test: without a device it fails in CI and skips, with a notice, elsewhere.
#define HEARTH_NEED_DEVICE()                                                            \
  do {                                                                                  \
    const ::hearth::accel::DeviceList list = ::hearth::accel::ListDevices();            \
    if (list.devices.empty()) {                                                         \
      if (std::getenv("CI") != nullptr) FAIL() << "no device in CI: " << list.why_none; \
      GTEST_SKIP() << "no device: " << list.why_none << "; install pocl-opencl-icd";    \
    }                                                                                   \
  } while (false)

// A device, a queue and buffers for the operands of a test.
class TestBench {
 public:
  Device& device() { return device_; }
  DeviceQueue& queue() { return *queue_; }

  template <class T>
  DeviceBuffer& Put(const std::vector<T>& values) {
    DeviceBuffer& buffer = Room<T>(values.size());
    queue_->Upload(std::as_bytes(std::span(values)), buffer);
    queue_->Finish();
    return buffer;
  }
  // Room for n elements, at least one, of zeros. A buffer is zero when it is made, but
  // Oclgrind 21.10 then tracks only the last word that clEnqueueFillBuffer wrote: what kernels
  // write elsewhere it reports as never written. It tracks all of a buffer that was uploaded as a
  // whole.
  template <class T = float>
  DeviceBuffer& Room(size_t n) {
    const std::vector<T> zeros(std::max<size_t>(n, 1));
    const auto bytes = std::as_bytes(std::span(zeros));
    buffers_.push_back(device_.MakeBuffer("test", bytes.size()));
    queue_->Upload(bytes, *buffers_.back());
    queue_->Finish();
    return *buffers_.back();
  }
  std::vector<float> Floats(DeviceBuffer& from, size_t n) {
    std::vector<float> values(n);
    queue_->Download(from, 0, std::as_writable_bytes(std::span(values)));
    queue_->Finish();
    return values;
  }

 private:
  Device& device_ = TestDevice();
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::unique_ptr<DeviceQueue> queue_ = device_.MakeQueue();
};

inline std::vector<float> RandomFloats(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// What rounding may do to a sum of n products whose magnitudes add up to `magnitude`, each operand
// of which was rounded a few times itself.
inline double SumTolerance(size_t n, double magnitude) {
  return static_cast<double>(n + 16) * 0x1p-24 * magnitude + 0x1p-140;
}

}  // namespace hearth::accel::testing
