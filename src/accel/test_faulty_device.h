// A device that fails where a test wants it to.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accel/device.h"
#include "base/error.h"

namespace hearth::accel::testing {

// What fails, and how: as the messages of opencl/ say it.
struct DeviceFaults {
  int buffers_left = 1 << 30;  // then the device has no memory left
  int marks_left = 1 << 30;    // then it is lost
  int finishes_left = 1 << 30;
  bool builds = true;  // whether its driver can build programs
};

// Takes one of what is left, or fails.
inline void TakeOne(int& left, ErrorCode code, const std::string& device, const char* words) {
  if (left == 0) throw Error(code, device, words);
  --left;
}

class FaultyQueue final : public DeviceQueue {
 public:
  FaultyQueue(std::unique_ptr<DeviceQueue> queue, DeviceFaults& faults, std::string device)
      : queue_(std::move(queue)), faults_(faults), device_(std::move(device)) {}
  void Upload(std::span<const std::byte> from, DeviceBuffer& to, uint64_t offset) override {
    queue_->Upload(from, to, offset);
  }
  void Download(DeviceBuffer& from, uint64_t offset, std::span<std::byte> to) override {
    queue_->Download(from, offset, to);
  }
  void Launch(DeviceKernel& kernel, const LaunchSize& size,
              std::span<const KernelArgument> arguments) override {
    queue_->Launch(kernel, size, arguments);
  }
  std::unique_ptr<DeviceEvent> Mark() override {
    TakeOne(faults_.marks_left, ErrorCode::kIo, device_, "a mark failed: the device is lost");
    return queue_->Mark();
  }
  void Finish() override {
    queue_->Finish();
    TakeOne(faults_.finishes_left, ErrorCode::kIo, device_,
            "waiting for it failed: the device is lost");
  }
  std::vector<CommandTime> TakeTimes() override { return queue_->TakeTimes(); }

 private:
  const std::unique_ptr<DeviceQueue> queue_;
  DeviceFaults& faults_;
  const std::string device_;
};

// `faults` must outlive it, and may be changed while it works.
class FaultyDevice final : public Device {
 public:
  FaultyDevice(std::unique_ptr<Device> device, DeviceFaults& faults)
      : device_(std::move(device)), faults_(faults) {}
  const DeviceInfo& info() const override { return device_->info(); }
  Budget& memory() override { return device_->memory(); }
  std::unique_ptr<DeviceBuffer> MakeBuffer(std::string_view name, uint64_t bytes) override {
    TakeOne(faults_.buffers_left, ErrorCode::kOutOfBudget, info().name,
            "the device has no memory left");
    return device_->MakeBuffer(name, bytes);
  }
  std::unique_ptr<DeviceKernel> MakeKernel(const ProgramName& program,
                                           const char* kernel) override {
    if (!faults_.builds) {
      throw Error(ErrorCode::kUnsupported, info().name,
                  "its driver cannot build the program " + std::string(program.file));
    }
    return device_->MakeKernel(program, kernel);
  }
  std::unique_ptr<DeviceQueue> MakeQueue() override {
    return std::make_unique<FaultyQueue>(device_->MakeQueue(), faults_, info().name);
  }
  std::unique_ptr<DeviceQueue> MakeTimedQueue() override {
    return std::make_unique<FaultyQueue>(device_->MakeTimedQueue(), faults_, info().name);
  }

 private:
  const std::unique_ptr<Device> device_;
  DeviceFaults& faults_;
};

}  // namespace hearth::accel::testing
