#include "accel/device_commands.h"

#include <utility>

namespace hearth::accel {

DeviceCommands::DeviceCommands(Device& device) : device_(device), queue_(device.MakeQueue()) {}

void DeviceCommands::Wait() {
  if (!sent_) return;
  const std::unique_ptr<DeviceEvent> sent = std::move(sent_);
  sent->Wait();
  if (trace_ != nullptr) {
    for (CommandTime& time : queue_->TakeTimes()) {
      trace_->Add({std::move(time.what), TraceSide::kDevice, layer_, tokens_, time.begin_seconds,
                   time.end_seconds});
    }
  }
  tokens_ = 0;
}

void DeviceCommands::Abandon() noexcept {
  sent_.reset();
  tokens_ = 0;
  try {
    queue_->Finish();
  } catch (...) {  // a lost device: nothing of it is in flight any more
  }
}

void DeviceCommands::Trace(DeviceTrace& trace) {
  queue_ = device_.MakeTimedQueue();
  trace_ = &trace;
}

}  // namespace hearth::accel
