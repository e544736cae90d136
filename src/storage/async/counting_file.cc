#include "storage/async/counting_file.h"

#include <bit>
#include <cerrno>
#include <utility>

namespace hearth {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

size_t Log2(uint32_t bytes) {
  return bytes == 0 ? 0 : static_cast<size_t>(std::bit_width(bytes)) - 1;
}

}  // namespace

class CountingFile::Queue final : public ReadQueue {
 public:
  Queue(std::unique_ptr<ReadQueue> inner, const Clock& clock, Sums* sums)
      : inner_(std::move(inner)), clock_(clock), sums_(sums) {}

  int depth() const noexcept override { return inner_->depth(); }
  size_t capacity() const noexcept override { return inner_->capacity(); }
  size_t in_flight() const noexcept override { return inner_->in_flight(); }
  bool RegisterBuffers(std::span<const std::span<std::byte>> regions) override {
    return inner_->RegisterBuffers(regions);
  }
  bool registered() const noexcept override { return inner_->registered(); }
  uint64_t gap_bytes() const noexcept override { return inner_->gap_bytes(); }
  void WithdrawGuesses() noexcept override { inner_->WithdrawGuesses(); }

  size_t Submit(std::span<const ReadRequest> requests) noexcept override {
    const int64_t begin_ns = clock_.NowNs();
    const size_t taken = inner_->Submit(requests);
    sums_->submit_ns.fetch_add(clock_.NowNs() - begin_ns, kRelaxed);
    uint64_t bytes = 0;
    for (const ReadRequest& request : requests.first(taken)) {
      bytes += request.bytes;
      sums_->reads_by_log2_bytes[Log2(request.bytes)].fetch_add(1, kRelaxed);
    }
    sums_->reads.fetch_add(taken, kRelaxed);
    sums_->bytes.fetch_add(bytes, kRelaxed);
    return taken;
  }

  size_t Poll(std::span<ReadCompletion> completions) noexcept override {
    const int64_t begin_ns = clock_.NowNs();
    const size_t count = inner_->Poll(completions);
    sums_->poll_ns.fetch_add(clock_.NowNs() - begin_ns, kRelaxed);
    CountErrors(completions.first(count));
    return count;
  }

  size_t Wait(std::span<ReadCompletion> completions) noexcept override {
    const int64_t begin_ns = clock_.NowNs();
    const size_t count = inner_->Wait(completions);
    sums_->wait_ns.fetch_add(clock_.NowNs() - begin_ns, kRelaxed);
    CountErrors(completions.first(count));
    return count;
  }

 private:
  void CountErrors(std::span<const ReadCompletion> completions) noexcept {
    uint64_t errors = 0;
    for (const ReadCompletion& completion : completions) {
      errors += completion.error != 0 && completion.error != ECANCELED ? 1 : 0;
    }
    if (errors > 0) sums_->errors.fetch_add(errors, kRelaxed);
  }

  const std::unique_ptr<ReadQueue> inner_;
  const Clock& clock_;
  Sums* sums_;
};

CountingFile::CountingFile(std::unique_ptr<AsyncFile> inner, const Clock* clock)
    : FileDecorator(std::move(inner)), clock_(clock != nullptr ? *clock : SteadyClock()) {}

std::unique_ptr<ReadQueue> CountingFile::OpenQueue(const QueueOptions& options) {
  return std::make_unique<Queue>(inner().OpenQueue(options), clock_, &sums_);
}

ReadCounts CountingFile::counts() const noexcept {
  ReadCounts counts;
  counts.reads = sums_.reads.load(kRelaxed);
  counts.bytes = sums_.bytes.load(kRelaxed);
  counts.errors = sums_.errors.load(kRelaxed);
  for (size_t i = 0; i < counts.reads_by_log2_bytes.size(); ++i) {
    counts.reads_by_log2_bytes[i] = sums_.reads_by_log2_bytes[i].load(kRelaxed);
  }
  counts.submit_ns = sums_.submit_ns.load(kRelaxed);
  counts.poll_ns = sums_.poll_ns.load(kRelaxed);
  counts.wait_ns = sums_.wait_ns.load(kRelaxed);
  return counts;
}

}  // namespace hearth
