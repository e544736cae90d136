#include "storage/async/throttled_file.h"

#include <mutex>
#include <utility>

#include "storage/async/file_decorator.h"
#include "storage/async/holding_queue.h"

namespace hearth {
namespace {

// The one device under all queues. Thread-safe.
class Device {
 public:
  explicit Device(DeviceProfile profile) : model_(std::move(profile)) {}

  int64_t Serve(const DeviceModel::Read& read, int64_t now_ns) noexcept {
    const std::lock_guard lock(mutex_);
    return model_.Serve(read, now_ns);
  }

 private:
  std::mutex mutex_;
  DeviceModel model_;  // guarded by mutex_
};

class ThrottledQueue final : public HoldingQueue {
 public:
  ThrottledQueue(std::unique_ptr<ReadQueue> inner, const Clock& clock, Device* device, int number,
                 int core)
      : HoldingQueue(std::move(inner), clock), device_(device), number_(number), core_(core) {}

 protected:
  int64_t DueNs(uint32_t, const ReadRequest& request, int64_t now_ns) noexcept override {
    return device_->Serve({request.offset, request.bytes, number_, core_}, now_ns);
  }

 private:
  Device* device_;
  const int number_;
  const int core_;
};

class ThrottledFile final : public FileDecorator {
 public:
  ThrottledFile(std::unique_ptr<AsyncFile> inner, ThrottleOptions options)
      : FileDecorator(std::move(inner)),
        clock_(options.clock != nullptr ? *options.clock : SteadyClock()),
        cores_(std::move(options.cores)),
        device_(std::move(options.profile)) {}

  std::unique_ptr<ReadQueue> OpenQueue(const QueueOptions& options) override {
    std::unique_ptr<ReadQueue> queue = inner().OpenQueue(options);
    const std::lock_guard lock(mutex_);
    const int number = queues_++;
    const auto index = static_cast<size_t>(number);
    const int core = cores_.empty() ? 0 : cores_[index < cores_.size() ? index : cores_.size() - 1];
    return std::make_unique<ThrottledQueue>(std::move(queue), clock_, &device_, number, core);
  }

 private:
  const Clock& clock_;
  const std::vector<int> cores_;
  Device device_;
  std::mutex mutex_;
  int queues_ = 0;  // opened so far; guarded by mutex_
};

}  // namespace

std::unique_ptr<AsyncFile> MakeThrottledFile(std::unique_ptr<AsyncFile> inner,
                                             ThrottleOptions options) {
  CheckProfile(options.profile);
  return std::make_unique<ThrottledFile>(std::move(inner), std::move(options));
}

}  // namespace hearth
