#include "serve/models/model_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/units.h"
#include "serve/models/model_names.h"

namespace hearth::serve {
namespace {

RequestError FailureOf(const std::string& name, const api::Error& error) {
  const std::string sentence =
      fmt::format("the model '{}' cannot be loaded: {}", ShownName(name), error.what());
  switch (error.code()) {
    case api::ErrorCode::kOutOfBudget:
      return {Status::kBadRequest, sentence, "model", "model_too_large"};
    case api::ErrorCode::kNotFound:
      return {Status::kNotFound, sentence, "model", "model_not_found"};
    case api::ErrorCode::kInvalidArgument:
    case api::ErrorCode::kUnsupported:
    case api::ErrorCode::kCorrupt:
      return {Status::kBadRequest, sentence, "model", "model_unusable"};
    case api::ErrorCode::kCancelled:
      return {Status::kUnavailable, sentence, "model", "stopping"};
    case api::ErrorCode::kIo:
    case api::ErrorCode::kBusy:
      return {Status::kUnavailable, sentence, "model", "model_fault"};
    default:
      return {Status::kInternal, sentence, "model"};
  }
}

RequestError FailureOf(const std::string& name, const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const RequestError& error) {
    return error;
  } catch (const api::Error& error) {
    return FailureOf(name, error);
  } catch (const std::bad_alloc&) {
    return {Status::kUnavailable, "the system has no more memory to give", "model"};
  } catch (const std::exception& error) {
    return FailureOf(name, api::Error(api::ErrorCode::kInternal, error.what()));
  }
}

RequestError TooLarge(const std::string& name, uint64_t bytes, uint64_t budget_bytes) {
  return FailureOf(name, api::Error(api::ErrorCode::kOutOfBudget,
                                    fmt::format("it takes {}, and all models together may have {}",
                                                FormatSize(bytes), FormatSize(budget_bytes))));
}

}  // namespace

ModelPool::ModelPool(ModelLoader& loader, Options options, PostFn post, PostFn load)
    : loader_(loader),
      options_(std::move(options)),
      post_(std::move(post)),
      load_(std::move(load)),
      shelf_(options_.budget_bytes) {}

ModelPool::Ticket ModelPool::Ask(const ModelKey& key, ModelWishes wishes) {
  ShelvedModel& model = shelf_.Of(key);
  if (model.failure) {
    wishes.on_failed(*model.failure);
    return 0;
  }
  if (model.is_ready()) {
    shelf_.Use(model, options_.now());
    wishes.on_ready(*model.resident);
    return 0;
  }
  if (line_.size() >= options_.most_waiting) {
    throw RequestError(Status::kTooManyRequests,
                       "too many requests wait for their model already: try again later", "",
                       "queue_full");
  }
  const Ticket ticket = line_.Add(key.name, std::move(wishes));
  CancelUselessLoad();
  Pump();
  return ticket;
}

void ModelPool::Cancel(Ticket ticket) {
  if (!line_.Remove(ticket)) return;
  CancelUselessLoad();
  Pump();
}

void ModelPool::OnRest(const std::string& name) {
  const Resident* const resident = shelf_.FindLoaded(name);
  if (resident != nullptr && resident->is_at_rest()) shelf_.Use(shelf_.At(name), options_.now());
  Pump();
}

void ModelPool::Forget(const std::string& name) {
  if (!shelf_.Has(name)) return;
  shelf_.Of({name, ""});
  Pump();
}

void ModelPool::UnloadRested() {
  if (job_ || is_stopping_ || !options_.unload_after) return;
  const Clock::time_point now = options_.now();
  std::vector<std::string> rested;
  for (const auto& [name, model] : shelf_.all()) {
    if (model.resident && now - model.last_use_time >= *options_.unload_after) {
      rested.push_back(name);
    }
  }
  UnloadOneOf(rested);
}

void ModelPool::Stop() {
  is_stopping_ = true;
  CancelUselessLoad();
}

uint64_t ModelPool::moving_bytes() const {
  return job_ && job_->kind != JobKind::kMeasure ? shelf_.At(job_->name).held_bytes : 0;
}

// A load goes on that nobody waits for any more, as its client may come back; but not where others
// wait, or the server ends.
void ModelPool::CancelUselessLoad() {
  if (!job_ || job_->kind != JobKind::kLoad || line_.Has(job_->name)) return;
  if (is_stopping_ || line_.size() > 0) *job_->cancel = true;
}

void ModelPool::Grant(const WaitingLine::IsFn& is_granted) {
  for (const WaitingLine::Waiter& waiter : line_.Take(is_granted)) {
    ShelvedModel& model = shelf_.At(waiter.model);
    shelf_.Use(model, options_.now());
    pumps_again_ = true;  // it may be at rest already, when its client is gone
    waiter.wishes.on_ready(*model.resident);
  }
}

void ModelPool::Fail(const std::string& name, const RequestError& error) {
  const auto is = [&](const std::string& waits) { return waits == name; };
  for (const WaitingLine::Waiter& waiter : line_.Take(is)) waiter.wishes.on_failed(error);
}

void ModelPool::Pump() {
  pumps_again_ = true;
  if (is_pumping_) return;
  is_pumping_ = true;
  while (std::exchange(pumps_again_, false)) PumpOnce();
  is_pumping_ = false;
}

void ModelPool::PumpOnce() {
  for (auto& [name, model] : shelf_.all()) model.is_leaving = false;
  // The first that cannot go on; requests behind it can whose models need not leave for it.
  const std::string first =
      line_.First([&](const std::string& waits) { return !shelf_.At(waits).is_current(); });
  if (!first.empty()) {
    for (const std::string& leaver : LeaversFor(first)) shelf_.At(leaver).is_leaving = true;
  }
  Grant([&](const std::string& waits) { return shelf_.At(waits).is_ready(); });
  if (!job_ && !pumps_again_ && !first.empty()) WorkFor(first);
  if (job_ || pumps_again_ || is_stopping_) return;
  std::vector<std::string> forgotten;
  for (const auto& [name, model] : shelf_.all()) {
    if (model.resident && !model.is_current()) forgotten.push_back(name);
  }
  UnloadOneOf(forgotten);
}

std::vector<std::string> ModelPool::LeaversFor(const std::string& name) const {
  if (job_ && job_->kind == JobKind::kLoad && job_->name == name) return {};  // it has its room
  const bool is_unloading = job_ && job_->kind == JobKind::kUnload;
  return shelf_.LeaversFor(name, is_unloading ? moving_bytes() : 0);
}

void ModelPool::UnloadOneOf(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (shelf_.At(name).resident->is_at_rest()) return StartUnloading(name);
  }
}

void ModelPool::WorkFor(const std::string& name) {
  const std::vector<std::string> leavers = LeaversFor(name);
  if (!leavers.empty()) return UnloadOneOf(leavers);  // or waits until one is at rest
  if (shelf_.At(name).bytes) return StartLoading(name);
  Start(JobKind::kMeasure, name,
        [this](const ModelKey& key, const std::atomic<bool>&, Result& result) {
          result.bytes = loader_.Measure(key);
        });
}

void ModelPool::Start(JobKind kind, const std::string& name, RunFn run) {
  const ModelKey key = {name, shelf_.At(name).version};
  const auto cancel = std::make_shared<std::atomic<bool>>(false);
  job_ = Job{kind, name, cancel};
  load_([this, key, cancel, run = std::move(run)] {
    const auto result = std::make_shared<Result>();
    try {
      run(key, *cancel, *result);
    } catch (...) {
      result->error = std::current_exception();
    }
    post_([this, key, result] { OnJobEnd(key, *result); });
  });
}

void ModelPool::StartLoading(const std::string& name) {
  ShelvedModel& model = shelf_.At(name);
  model.held_bytes = *model.bytes;
  Start(JobKind::kLoad, name,
        [this, bytes = *model.bytes](const ModelKey& key, const std::atomic<bool>& cancel,
                                     Result& result) {
          result.resident = loader_.Load(key, bytes, cancel);
        });
}

void ModelPool::StartUnloading(const std::string& name) {
  // Whatever copies there are of the function: the model dies where it runs.
  const auto leaving =
      std::make_shared<std::shared_ptr<Resident>>(std::exchange(shelf_.At(name).resident, nullptr));
  Start(JobKind::kUnload, name,
        [leaving](const ModelKey&, const std::atomic<bool>&, Result&) { leaving->reset(); });
}

void ModelPool::OnJobEnd(const ModelKey& key, Result& result) {
  const Job job = *std::exchange(job_, std::nullopt);
  is_pumping_ = true;  // after this
  if (job.kind == JobKind::kMeasure) {
    OnMeasured(key, result);
  } else if (job.kind == JobKind::kLoad) {
    OnLoaded(key, *job.cancel, result);
  } else {
    shelf_.At(key.name).held_bytes = 0;
    ++counts_.unloads;
  }
  is_pumping_ = false;
  Pump();
}

void ModelPool::OnMeasured(const ModelKey& key, const Result& result) {
  ShelvedModel& model = shelf_.At(key.name);
  if (model.version != key.version) return;  // its files have changed: once more
  std::optional<RequestError> failure;
  if (result.error) {
    failure = FailureOf(key.name, result.error);
  } else if (result.bytes > options_.budget_bytes) {
    failure = TooLarge(key.name, result.bytes, options_.budget_bytes);
  }
  if (!failure) {
    model.bytes = result.bytes;
    return;
  }
  ++counts_.failed_loads;
  if (failure->status() == Status::kBadRequest) model.failure = failure;
  Fail(key.name, *failure);
}

void ModelPool::OnLoaded(const ModelKey& key, bool was_cancelled, Result& result) {
  ShelvedModel& model = shelf_.At(key.name);
  if (result.resident) {
    ++counts_.loads;
    model.resident = std::move(result.resident);
    model.loaded_version = key.version;
    shelf_.Use(model, options_.now());
    // All that came until now, although others wait for its room already.
    if (model.is_current()) Grant([&](const std::string& waits) { return waits == key.name; });
    return;
  }
  model.held_bytes = 0;
  if (was_cancelled || model.version != key.version) return;  // who waits now gets another try
  ++counts_.failed_loads;
  const RequestError failure = FailureOf(key.name, result.error);
  if (failure.status() == Status::kBadRequest) model.failure = failure;
  Fail(key.name, failure);
}

}  // namespace hearth::serve
