// Start here: a device beside the processor, with memory of its own (P1 §5).
//
// A Device has memory (a Budget and its ledger), buffers in it, kernels and queues. A queue takes
// uploads, launches and downloads, and runs them in order while the caller does something else; an
// event tells when it has come to a point. opencl/ implements it, or none/ in a build without
// OpenCL; devices.h finds and opens devices.
//
// Errors, all hearth::Error with one sentence that begins with the device's name: kOutOfBudget
// where memory does not suffice, kIo where the device is lost or a command fails, kUnsupported
// where the driver cannot build a program, kInternal where a caller breaks a contract. After kIo
// objects of the device can only be destroyed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/budget.h"

namespace hearth::accel {

enum class DeviceKind { kGpu, kAccelerator, kCpu };

// "gpu", "accelerator", "cpu".
const char* NameOf(DeviceKind kind);

// What a device's driver says about it.
struct DeviceInfo {
  std::string name;
  std::string vendor;
  std::string platform;  // whose driver, and its version
  std::string driver;    // the driver's own version
  DeviceKind kind = DeviceKind::kGpu;
  uint64_t memory_bytes = 0;      // all memory that kernels can use
  uint64_t max_buffer_bytes = 0;  // of one buffer
  uint64_t local_bytes = 0;       // that a work-group shares
  uint32_t compute_units = 0;
  uint32_t clock_mhz = 0;
  uint64_t max_group_size = 0;
  bool shares_memory = false;  // with the host
  bool has_half = false;       // computes in binary16 (cl_khr_fp16)
};

// Memory of a device, zero-filled when made. Charged to the device's budget until it is destroyed;
// it must not outlive the device. Destroy it once no command uses it.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual uint64_t size_bytes() const = 0;
};

// The program of a kernel: a file of opencl/kernels, compiled for a type of weights where `type` is
// not empty ("Q4_0").
struct ProgramName {
  std::string_view file;
  std::string_view type = {};
};

// A function of a program. One thread at a time; must not outlive the device.
class DeviceKernel {
 public:
  virtual ~DeviceKernel() = default;
};

// An argument of a kernel; it has the exact type of its parameter.
using KernelArgument = std::variant<DeviceBuffer*, int32_t, int64_t, float>;

// Work-items of a launch by dimension. `total` is a multiple of `group`.
struct LaunchSize {
  std::array<size_t, 2> total = {1, 1};
  std::array<size_t, 2> group = {1, 1};
};

// A point in a queue. Must not outlive the device.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Returns when all commands before it are done. Throws Error(kIo) where one of them failed.
  virtual void Wait() = 0;
};

// When a command of a queue ran, in seconds of the host's steady clock.
struct CommandTime {
  std::string what;  // "upload", "download", or the name of a kernel
  double begin_seconds = 0;
  double end_seconds = 0;
};

// Commands of one thread at a time, run in order, each after the one before is done. Host memory
// of a command must stay as it is until the caller has waited for a later event or for Finish. Must
// not outlive the device.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;  // waits for all commands
  virtual void Upload(std::span<const std::byte> from, DeviceBuffer& to, uint64_t offset = 0) = 0;
  virtual void Download(DeviceBuffer& from, uint64_t offset, std::span<std::byte> to) = 0;
  virtual void Launch(DeviceKernel& kernel, const LaunchSize& size,
                      std::span<const KernelArgument> arguments) = 0;
  // Sends all commands so far to the device; drivers may hold them back until then.
  virtual std::unique_ptr<DeviceEvent> Mark() = 0;
  virtual void Finish() = 0;
  // Returns when each command since the last call ran, in order, once all of them are done. A queue
  // that is not timed returns nothing.
  virtual std::vector<CommandTime> TakeTimes() = 0;
};

// Thread-safe, but for what queues and kernels say.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // What buffers are charged to.
  virtual Budget& memory() = 0;
  // bytes > 0, at most info().max_buffer_bytes.
  virtual std::unique_ptr<DeviceBuffer> MakeBuffer(std::string_view name, uint64_t bytes) = 0;
  // Builds the program at the first call for it, or takes it from the cache of binaries.
  virtual std::unique_ptr<DeviceKernel> MakeKernel(const ProgramName& program,
                                                   const char* kernel) = 0;
  virtual std::unique_ptr<DeviceQueue> MakeQueue() = 0;
  // The same, which keeps the times of its commands.
  virtual std::unique_ptr<DeviceQueue> MakeTimedQueue() = 0;
};

}  // namespace hearth::accel
