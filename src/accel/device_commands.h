// Commands of a queue that are sent together and waited for together.
#pragma once

#include <cstdint>
#include <memory>

#include "accel/device.h"
#include "accel/device_trace.h"
#include "tensor/view.h"

namespace hearth::accel {

// One thread at a time. Calls throw what the queue does. The device must outlive it, and so must
// buffers that commands use.
class DeviceCommands {
 public:
  explicit DeviceCommands(Device& device);
  ~DeviceCommands() { Abandon(); }
  DeviceCommands(const DeviceCommands&) = delete;
  DeviceCommands& operator=(const DeviceCommands&) = delete;

  DeviceQueue& queue() { return *queue_; }
  // Sends all commands so far.
  void Send() { sent_ = queue_->Mark(); }
  // Rows of floats, which may lie apart on the host and lie one after the other on the device.
  void UploadRows(const FloatView& from, DeviceBuffer& to);
  void DownloadRows(DeviceBuffer& from, const FloatView& to);
  // Returns when all that was sent is done and in host memory.
  void Wait();
  // The same after an error of somebody else, so that host memory is free again.
  void Abandon() noexcept;

  // Enters later commands into `trace`, which must live as long. Nothing may be in flight.
  void Trace(DeviceTrace& trace);
  DeviceTrace* trace() const { return trace_; }  // null: nobody wants to know
  // What spans of commands say: of which layer they are, and, added up until the next Wait, of how
  // many tokens.
  void SetLayer(int64_t layer) { layer_ = layer; }
  void AddTokens(int64_t tokens) { tokens_ += tokens; }

 private:
  Device& device_;
  std::unique_ptr<DeviceQueue> queue_;
  std::unique_ptr<DeviceEvent> sent_;  // the last that was sent; null: nothing is in flight
  DeviceTrace* trace_ = nullptr;
  int64_t layer_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace hearth::accel
