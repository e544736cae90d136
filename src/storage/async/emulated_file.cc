#include "storage/async/emulated_file.h"

#include <utility>

#include "base/budget.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "base/units.h"
#include "storage/async/file_decorator.h"
#include "storage/async/memory_file.h"
#include "storage/async/throttled_file.h"
#include "storage/block_reader.h"

namespace hearth {
namespace {

constexpr uint32_t kBlockBytes = 512;

// Destroyed after the file that it counts.
struct OwnBudget {
  std::unique_ptr<Budget> budget = std::make_unique<Budget>();
};

class EmulatedFile final : private OwnBudget, public FileDecorator {
 public:
  EmulatedFile(const std::string& path, const EmulatedDevice& device)
      : FileDecorator(MakeThrottledFile(
            LoadMemoryFile(path, *budget,
                           {.alignment_bytes = kBlockBytes, .memory_alignment_bytes = kBlockBytes}),
            {.profile = device.flash, .cores = {device.core}, .clock = device.clock})),
        backend_("emulated " + device.flash.name) {}

  const char* backend() const override { return backend_.c_str(); }
  bool direct() const override { return true; }
  std::unique_ptr<ReadQueue> OpenQueue(const QueueOptions& options) override {
    return inner().OpenQueue(options);
  }

 private:
  const std::string backend_;
};

}  // namespace

std::unique_ptr<AsyncFile> OpenEmulatedFile(const std::string& path, const EmulatedDevice& device) {
  CheckProfile(device.flash);
  const uint64_t bytes = OpenFileReader(path)->size_bytes();
  const uint64_t free_bytes = AvailableMemoryBytes();
  if (bytes > free_bytes) {
    throw Error(ErrorCode::kOutOfBudget, path, "memory to serve it from, as another device would",
                "at most " + FormatSize(free_bytes) + " free", FormatSize(bytes));
  }
  return std::make_unique<EmulatedFile>(path, device);
}

}  // namespace hearth
