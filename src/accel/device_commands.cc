#include "accel/device_commands.h"

#include <utility>

namespace hearth::accel {
namespace {

// Rows that lie one after the other.
std::span<std::byte> BytesOf(const FloatView& rows) {
  return std::as_writable_bytes(std::span(rows.data, static_cast<size_t>(rows.rows * rows.cols)));
}

// Calls transfer(rows, offset) with as many rows at a time as lie one after the other; `offset` is
// in bytes, where rows do not lie apart.
template <class Transfer>
void ForNeighbours(const FloatView& rows, const Transfer& transfer) {
  if (rows.rows <= 1 || rows.stride == rows.cols) return transfer(BytesOf(rows), uint64_t{0});
  for (int64_t r = 0; r < rows.rows; ++r) {
    transfer(BytesOf(rows.Rows(r, 1)), static_cast<uint64_t>(r * rows.cols) * sizeof(float));
  }
}

}  // namespace

DeviceCommands::DeviceCommands(Device& device) : device_(device), queue_(device.MakeQueue()) {}

void DeviceCommands::UploadRows(const FloatView& from, DeviceBuffer& to) {
  ForNeighbours(from, [&](std::span<std::byte> bytes, uint64_t offset) {
    queue_->Upload(bytes, to, offset);
  });
}

void DeviceCommands::DownloadRows(DeviceBuffer& from, const FloatView& to) {
  ForNeighbours(to, [&](std::span<std::byte> bytes, uint64_t offset) {
    queue_->Download(from, offset, bytes);
  });
}

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
