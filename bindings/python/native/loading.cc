#include "loading.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>
#include <utility>

#include "without_gil.h"

namespace hearth::python {
namespace {

namespace py = pybind11;

// How soon Ctrl-C is noticed while nothing is told.
constexpr std::chrono::milliseconds kSignalCheck(50);

// What the thread that loads leaves for the one that waits; it never needs the interpreter's lock.
class Desk {
 public:
  using Bytes = std::pair<uint64_t, uint64_t>;

  void Put(Bytes bytes) {
    const std::lock_guard lock(mutex_);
    if (is_unwanted_) throw api::Error(api::ErrorCode::kCancelled, "loading was given up");
    bytes_ = bytes;
    changed_.notify_all();
  }
  void PutEnd() {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    changed_.notify_all();
  }
  void GiveUp() {
    const std::lock_guard lock(mutex_);
    is_unwanted_ = true;
  }

  // Waits for a while.
  struct Seen {
    std::optional<Bytes> bytes;  // the newest, once
    bool has_ended = false;
  };
  Seen Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSignalCheck, [this] { return bytes_ || has_ended_; });
    return {std::exchange(bytes_, std::nullopt), has_ended_};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Bytes> bytes_;  // all guarded by mutex_
  bool has_ended_ = false;
  bool is_unwanted_ = false;
};

// Throws py::error_already_set.
void TellUntilTheEnd(Desk& desk, const py::object& progress) {
  for (;;) {
    const Desk::Seen seen = WithoutGil([&] { return desk.Wait(); });
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (seen.bytes && !progress.is_none()) progress(seen.bytes->first, seen.bytes->second);
    if (seen.has_ended) return;
  }
}

}  // namespace

std::shared_ptr<api::Model> LoadModel(const std::string& path, api::LoadOptions options,
                                      const py::object& progress) {
  Desk desk;
  options.on_progress = [&desk](uint64_t done, uint64_t total) { desk.Put({done, total}); };
  auto loading = WithoutGil([&] {
    return std::async(std::launch::async, [&]() -> std::shared_ptr<api::Model> {
      struct AtEnd {
        Desk& desk;
        ~AtEnd() { desk.PutEnd(); }
      } const at_end{desk};
      return std::make_shared<api::Model>(api::Model::Load(path, options));
    });
  });
  try {
    TellUntilTheEnd(desk, progress);
  } catch (...) {
    desk.GiveUp();
    WithoutGil([&] { loading.wait(); });
    throw;
  }
  return WithoutGil([&] { return loading.get(); });
}

}  // namespace hearth::python
