#include "storage/async/pread_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "storage/async/slot_queue.h"

namespace hearth {
namespace {

constexpr int kMaxThreads = 256;

class PreadQueue;

// A slot's read on its way: in its queue's batch, in the pool's list, in a thread's hands, in its
// queue's list of results. Links make lists without allocation.
struct Job {
  Job* next = nullptr;
  PreadQueue* queue = nullptr;
  uint32_t slot = 0;
  ReadProgress* read = nullptr;   // the thread's own until the job is in the list of results
  std::span<const iovec> pieces;  // of a read for several requests; as `read`
  int64_t result = 0;             // of such a read, what the system returned
  int error = 0;                  // of others
};

// Jobs in order. Not thread-safe.
class JobList {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  void Push(Job* job) noexcept {
    job->next = nullptr;
    if (first_ == nullptr) {
      first_ = job;
    } else {
      last_->next = job;
    }
    last_ = job;
  }
  // The caller keeps the list from being empty.
  Job* Pop() noexcept {
    Job* job = first_;
    first_ = job->next;
    return job;
  }
  // Moves all of `other`, which is not empty, after what is here.
  void Append(JobList& other) noexcept {
    if (first_ == nullptr) {
      first_ = other.first_;
    } else {
      last_->next = other.first_;
    }
    last_ = other.last_;
    other.first_ = nullptr;
  }

 private:
  Job* first_ = nullptr;
  Job* last_ = nullptr;  // valid where first_ is not null
};

// The threads of one file. Thread-safe.
class PreadPool {
 public:
  PreadPool(const OpenedFile& file, int max_threads) : file_(file), max_threads_(max_threads) {}
  ~PreadPool();
  PreadPool(const PreadPool&) = delete;
  PreadPool& operator=(const PreadPool&) = delete;

  // A queue of such a depth is being opened. Throws Error(kIo) where there is no thread at all.
  void Grow(int depth);
  // Takes `count` jobs, at least 1.
  void Add(JobList& jobs, size_t count) noexcept;

 private:
  void RunThread() noexcept;
  void RunJob(Job* job) noexcept;

  const OpenedFile& file_;
  const int max_threads_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  JobList jobs_;                      // guarded by mutex_
  bool stopping_ = false;             // guarded by mutex_
  std::vector<std::thread> threads_;  // guarded by mutex_
};

class PreadQueue final : public SlotQueue {
 public:
  PreadQueue(const OpenedFile& opened, const QueueOptions& options, PreadPool* pool);
  ~PreadQueue() override { Drain(); }
  PreadQueue(const PreadQueue&) = delete;
  PreadQueue& operator=(const PreadQueue&) = delete;

  // Called by the pool's threads. The queue may be gone when it returns.
  void Done(Job* job) noexcept;

 protected:
  void Start(uint32_t index) noexcept override;
  void Flush() noexcept override;
  size_t Reap(std::span<ReadCompletion> completions, bool block) noexcept override;

 private:
  PreadPool* pool_;
  std::vector<Job> jobs_;  // one for each slot
  JobList batch_;          // started since the last Flush
  size_t batch_size_ = 0;
  JobList ready_;  // results taken from results_ that are not handed back yet
  std::mutex mutex_;
  std::condition_variable has_result_;
  JobList results_;  // guarded by mutex_
};

PreadPool::~PreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void PreadPool::Grow(int depth) {
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < depth && static_cast<int>(threads_.size()) < max_threads_; ++i) {
    try {
      threads_.emplace_back([this] { RunThread(); });
    } catch (const std::system_error& error) {
      if (!threads_.empty()) return;  // slower with fewer, not wrong
      throw Error(ErrorCode::kIo, file_.path,
                  fmt::format("cannot start a thread that reads: {}", error.what()));
    }
  }
}

void PreadPool::Add(JobList& jobs, size_t count) noexcept {
  {
    const std::lock_guard lock(mutex_);
    jobs_.Append(jobs);
  }
  if (count == 1) {
    has_work_.notify_one();
  } else {
    has_work_.notify_all();
  }
}

void PreadPool::RunThread() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job* job = jobs_.Pop();
    lock.unlock();
    RunJob(job);
    lock.lock();
  }
}

// By name in tests/thread_sanitizer.supp.
ssize_t ReadTogether(int handle, std::span<const iovec> pieces, uint64_t offset) noexcept {
  return preadv(handle, pieces.data(), static_cast<int>(pieces.size()), static_cast<off_t>(offset));
}

void PreadPool::RunJob(Job* job) noexcept {
  ReadProgress& read = *job->read;
  ReadStep step = ReadStep::kAgain;
  if (!job->pieces.empty()) {
    job->result = ReadTogether(file_.handle.get(), job->pieces, read.offset);
    step = ReadStep::kDone;  // the queue looks what came of it
  }
  while (step == ReadStep::kAgain) {
    const ssize_t got =
        pread(file_.handle.get(), read.data, read.bytes, static_cast<off_t>(read.offset));
    step = read.Advance(got < 0 ? -int64_t{errno} : int64_t{got}, file_.limits);
  }
  job->error = step == ReadStep::kFailed ? read.error : 0;
  job->queue->Done(job);
}

PreadQueue::PreadQueue(const OpenedFile& opened, const QueueOptions& options, PreadPool* pool)
    : SlotQueue(opened, options), pool_(pool), jobs_(static_cast<size_t>(options.depth)) {
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const auto index = static_cast<uint32_t>(i);
    jobs_[i].queue = this;
    jobs_[i].slot = index;
    jobs_[i].read = &slot(index);
  }
}

void PreadQueue::Start(uint32_t index) noexcept {
  jobs_[index].pieces = pieces(index);
  batch_.Push(&jobs_[index]);
  ++batch_size_;
}

void PreadQueue::Flush() noexcept {
  if (batch_size_ > 0) pool_->Add(batch_, batch_size_);
  batch_size_ = 0;
}

void PreadQueue::Done(Job* job) noexcept {
  // Notified under the lock: the owner may destroy the queue as soon as it has this result.
  const std::lock_guard lock(mutex_);
  results_.Push(job);
  has_result_.notify_one();
}

size_t PreadQueue::Reap(std::span<ReadCompletion> completions, bool block) noexcept {
  if (block) Flush();
  if (ready_.empty()) {
    std::unique_lock lock(mutex_);
    if (block) has_result_.wait(lock, [this] { return !results_.empty(); });
    if (!results_.empty()) ready_.Append(results_);
  }
  size_t count = 0;
  while (count < completions.size() && !ready_.empty()) {
    const Job* job = ready_.Pop();
    if (job->pieces.empty()) {
      Finish(job->slot, job->error, &completions[count++]);
    } else if (Advance(job->slot, job->result, &completions[count])) {
      ++count;
    }
  }
  return count;
}

class PreadFile final : public DiskFile {
 public:
  PreadFile(OpenedFile file, int threads) : DiskFile(std::move(file)), pool_(file_, threads) {}

  const char* backend() const override { return "pread"; }
  std::unique_ptr<ReadQueue> OpenQueue(const QueueOptions& options) override {
    const QueueOptions checked = CheckedQueueOptions(file_.path, options);
    pool_.Grow(checked.depth);
    return std::make_unique<PreadQueue>(file_, checked, &pool_);
  }

 private:
  PreadPool pool_;
};

}  // namespace

std::unique_ptr<AsyncFile> MakePreadFile(OpenedFile file, int threads) {
  if (threads < 1 || threads > kMaxThreads) {
    throw Error(ErrorCode::kInvalidArgument, file.path, "number of threads that read",
                fmt::format("1 to {}", kMaxThreads), fmt::format("{}", threads));
  }
  return std::make_unique<PreadFile>(std::move(file), threads);
}

}  // namespace hearth
