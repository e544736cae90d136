// Which models are in memory, within one budget.
//
// States of a model:
//
//   absent -> loading -> loaded (in use or at rest) -> unloading -> absent
//
// A request waits in one line until its model is loaded. Only the first request that cannot go on
// decides what is done for it: its model is measured, models leave until there is room for it, and
// it is loaded, for all who wait for it. Models leave that have been at rest for longest; where
// those are too few, models in use leave as well: they take no new requests until theirs have
// ended. Requests for all other models go on meanwhile. One thing is measured, loaded or unloaded
// at a time, so that what is loaded, loading and unloading never takes more than the budget.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/exchange_context.h"
#include "serve/models/model_shelf.h"
#include "serve/models/waiting_line.h"
#include "serve/request_error.h"

namespace hearth::serve {

// Loads models, on the loading thread. What it throws ends the requests that wait for the model.
class ModelLoader {
 public:
  virtual ~ModelLoader() = default;
  // Returns what the model will take of the budget. Throws where it can never be loaded.
  virtual uint64_t Measure(const ModelKey& key) = 0;
  // Loads it within `bytes`. Throws, soon, after `cancel` was set.
  virtual std::shared_ptr<Resident> Load(const ModelKey& key, uint64_t bytes,
                                         const std::atomic<bool>& cancel) = 0;
};

// On one thread, but for the loader.
class ModelPool {
 public:
  using Clock = ShelvedModel::Clock;
  using Ticket = WaitingLine::Ticket;
  struct Options {
    uint64_t budget_bytes = 0;  // for all models together
    size_t most_waiting = 64;   // requests
    // Models are unloaded that were at rest for so long; nothing: only where others need the room.
    std::optional<Clock::duration> unload_after;
    std::function<Clock::time_point()> now = Clock::now;
  };
  struct Counts {
    int64_t loads = 0;
    int64_t failed_loads = 0;
    int64_t unloads = 0;
  };

  // post: runs functions on the pool's thread; load: on the loading thread, in order. Outlives what
  // they run.
  ModelPool(ModelLoader& loader, Options options, PostFn post, PostFn load);

  // Asks for a model. Calls on_ready at once where it is loaded and no earlier request waits for
  // its memory. Throws RequestError(kTooManyRequests) where too many wait.
  Ticket Ask(const ModelKey& key, ModelWishes wishes);
  // The request is gone: nothing is called any more. Without effect after its end.
  void Cancel(Ticket ticket);

  // A loaded model has come to rest; to be called after every time.
  void OnRest(const std::string& name);
  // The files of a model have changed or gone: it leaves once it is at rest.
  void Forget(const std::string& name);
  // Unloads what was at rest for long enough.
  void UnloadRested();
  // Loads that nobody waits for are ended from now on.
  void Stop();
  // At the end: all that is loaded.
  std::vector<std::shared_ptr<Resident>> TakeAll() { return shelf_.TakeAll(); }

  // Whether nothing is being measured, loaded or unloaded.
  bool is_idle() const { return !job_; }
  const ModelShelf& shelf() const { return shelf_; }
  // What is being loaded or unloaded takes of the budget.
  uint64_t moving_bytes() const;
  size_t waiting() const { return line_.size(); }
  const Counts& counts() const { return counts_; }

 private:
  enum class JobKind { kMeasure, kLoad, kUnload };
  struct Job {
    JobKind kind;
    std::string name;
    std::shared_ptr<std::atomic<bool>> cancel;
  };
  // What a job on the loading thread came to.
  struct Result {
    uint64_t bytes = 0;
    std::shared_ptr<Resident> resident;
    std::exception_ptr error;
  };
  using RunFn =
      std::function<void(const ModelKey& key, const std::atomic<bool>& cancel, Result& result)>;

  // Does what can be done now. May be called while it runs.
  void Pump();
  void PumpOnce();
  void Grant(const WaitingLine::IsFn& is_granted);
  std::vector<std::string> LeaversFor(const std::string& name) const;
  void WorkFor(const std::string& name);
  // Unloads the first that is at rest, if any.
  void UnloadOneOf(const std::vector<std::string>& names);
  void CancelUselessLoad();

  void Start(JobKind kind, const std::string& name, RunFn run);
  void StartLoading(const std::string& name);
  void StartUnloading(const std::string& name);
  void OnJobEnd(const ModelKey& key, Result& result);
  void OnMeasured(const ModelKey& key, const Result& result);
  void OnLoaded(const ModelKey& key, bool was_cancelled, Result& result);
  void Fail(const std::string& name, const RequestError& error);

  ModelLoader& loader_;
  const Options options_;
  const PostFn post_;
  const PostFn load_;
  ModelShelf shelf_;
  WaitingLine line_;
  std::optional<Job> job_;
  Counts counts_;
  bool is_stopping_ = false;
  bool is_pumping_ = false, pumps_again_ = false;
};

}  // namespace hearth::serve
