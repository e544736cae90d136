#include "storage/async/faulty_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/random_words.h"
#include "storage/async/holding_queue.h"

namespace hearth {
namespace {

constexpr int kLostByte = 0xa5;  // stands where data did not arrive

void CheckFault(const std::string& name, const Fault& fault) {
  const char* problem = nullptr;
  if (fault.kind == FaultKind::kError && fault.error < 1) problem = "an error without a number";
  if (fault.kind == FaultKind::kFlip && fault.mask == 0) problem = "a flip of no bits";
  if (fault.kind == FaultKind::kDelay && fault.delay_ns < 0) problem = "a negative delay";
  if (problem != nullptr) {
    throw Error(ErrorCode::kInvalidArgument, name,
                fmt::format("the fault of read {} is {}", fault.nth_read, problem));
  }
}

// What a fault does to a read that succeeded until now; returns its error.
int Apply(const Fault& fault, const ReadRequest& request) noexcept {
  switch (fault.kind) {
    case FaultKind::kError:
      std::memset(request.data, kLostByte, request.bytes);
      return fault.error;
    case FaultKind::kShortRead: {
      const auto arrived = static_cast<size_t>(std::min<uint64_t>(fault.byte, request.bytes));
      std::memset(request.data + arrived, kLostByte, request.bytes - arrived);
      return EIO;
    }
    case FaultKind::kDelay:
      return 0;
    case FaultKind::kFlip:
      request.data[fault.byte % request.bytes] ^= std::byte{fault.mask};
      return 0;
  }
  return 0;
}

}  // namespace

class FaultyFile::Queue final : public HoldingQueue {
 public:
  Queue(std::unique_ptr<ReadQueue> inner, FaultyFile* file)
      : HoldingQueue(std::move(inner), file->clock_),
        file_(file),
        numbers_(static_cast<size_t>(depth())) {}

 protected:
  int64_t DueNs(uint32_t slot, const ReadRequest&, int64_t now_ns) noexcept override {
    numbers_[slot] = file_->reads_.fetch_add(1);
    int64_t due_ns = now_ns;
    size_t faults = 0;
    file_->ForFaults(numbers_[slot], [&](const Fault& fault) {
      ++faults;
      if (fault.kind == FaultKind::kDelay) due_ns += fault.delay_ns;
    });
    if (faults > 0) file_->faults_.fetch_add(1);
    return due_ns;
  }

  int Completed(uint32_t slot, const ReadRequest& request, int error) noexcept override {
    file_->ForFaults(numbers_[slot], [&](const Fault& fault) {
      if (error == 0) error = Apply(fault, request);
    });
    return error;
  }

 private:
  FaultyFile* file_;
  std::vector<uint64_t> numbers_;  // by slot: which read of the file it is
};

FaultyFile::FaultyFile(std::unique_ptr<AsyncFile> inner, FaultScript script, const Clock* clock)
    : FileDecorator(std::move(inner)),
      clock_(clock != nullptr ? *clock : SteadyClock()),
      script_(std::move(script)) {
  for (const Fault& fault : script_) {
    CheckFault(name(), fault);
    most_reads_ = std::max(most_reads_, fault.reads);
  }
  std::stable_sort(script_.begin(), script_.end(),
                   [](const Fault& a, const Fault& b) { return a.nth_read < b.nth_read; });
}

std::unique_ptr<ReadQueue> FaultyFile::OpenQueue(const QueueOptions& options) {
  return std::make_unique<Queue>(inner().OpenQueue(options), this);
}

template <typename Fn>
void FaultyFile::ForFaults(uint64_t nth, Fn fn) const noexcept {
  // No fault that begins earlier lasts until here.
  const uint64_t earliest = nth >= most_reads_ ? nth - most_reads_ : 0;
  auto fault = std::lower_bound(script_.begin(), script_.end(), earliest,
                                [](const Fault& f, uint64_t n) { return f.nth_read < n; });
  for (; fault != script_.end() && fault->nth_read <= nth; ++fault) {
    if (nth - fault->nth_read < fault->reads) fn(*fault);
  }
}

FaultScript RandomFaultScript(uint64_t seed, uint64_t reads, const FaultRates& rates) {
  FaultScript script;
  for (uint64_t nth = 0; nth < reads; ++nth) {
    RandomWords random(StreamOf(seed, nth, 0));
    Fault fault;
    fault.nth_read = nth;
    fault.byte = random.Next() >> 48;
    if (random.NextUnit() < rates.error) {
      constexpr int kErrors[] = {EIO, ENXIO, ETIMEDOUT};
      fault.kind = FaultKind::kError;
      fault.error = kErrors[random.NextBelow(3)];
      script.push_back(fault);
    }
    if (random.NextUnit() < rates.short_read) {
      fault.kind = FaultKind::kShortRead;
      script.push_back(fault);
    }
    if (random.NextUnit() < rates.delay) {
      fault.kind = FaultKind::kDelay;
      fault.delay_ns =
          static_cast<int64_t>(random.NextUnit() * static_cast<double>(rates.max_delay_ns));
      script.push_back(fault);
    }
    if (random.NextUnit() < rates.flip) {
      fault.kind = FaultKind::kFlip;
      fault.mask = static_cast<uint8_t>(1u << random.NextBelow(8));
      script.push_back(fault);
    }
  }
  return script;
}

}  // namespace hearth
