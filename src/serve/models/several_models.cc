#include "serve/models/several_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <utility>

#include "base/memory_info.h"
#include "base/units.h"
#include "serve/models/model_names.h"

namespace hearth::serve {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::milliseconds Until(Clock::time_point until) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
}

// What the source throws, for whoever asked.
template <typename Fn>
auto Asked(Fn&& fn) {
  try {
    return std::forward<Fn>(fn)();
  } catch (const api::Error& error) {
    throw RequestError(Status::kUnavailable, error.what(), "model", "model_fault");
  }
}

// A request that waits for its model, and then is worked on by it. Lives on the server's thread.
class ModelWait : public Exchange, public std::enable_shared_from_this<ModelWait> {
 public:
  ModelWait(ModelPool& pool, std::shared_ptr<Reply> reply)
      : pool_(pool), reply_(std::move(reply)) {}

  using BeginFn = std::function<AnswerFn(Resident& model)>;

  // begin: what the request does once its model is there.
  void Start(const ModelKey& key, const BeginFn& begin) {
    const auto self = shared_from_this();
    ticket_ = pool_.Ask(
        key,
        {.on_ready = [self, begin](Resident& model) { self->GoOn([&] { return begin(model); }); },
         .on_failed =
             [self](const RequestError& error) {
               self->GoOn([&]() -> AnswerFn { throw error; });
             }});
  }

  void Abandon() override {
    reply_.reset();
    pool_.Cancel(ticket_);
    if (next_) std::exchange(next_, nullptr)->Abandon();
  }
  ExchangeReport Report() const override { return next_ ? next_->Report() : ExchangeReport(); }

 private:
  void GoOn(const std::function<AnswerFn()>& prepare) {
    const std::shared_ptr<Reply> reply = std::exchange(reply_, nullptr);
    if (reply) next_ = AnswerOrError(prepare, reply);
  }

  ModelPool& pool_;
  std::shared_ptr<Reply> reply_;  // null once nobody waits for it
  ModelPool::Ticket ticket_ = 0;
  std::shared_ptr<Exchange> next_;  // what answers
};

}  // namespace

// A model in memory, and its service.
class SeveralModels::ServedModel : public Resident {
 public:
  ServedModel(SeveralModels& host, std::unique_ptr<api::Model> model, const std::string& name)
      : save_time_(host.options_.save_time),
        tell_(host.tell_),
        model_(std::move(model)),
        service_(*model_, name, host.shared_, [&host, name] { host.pool_.OnRest(name); }) {}
  ~ServedModel() override {
    const std::string name = service_.name();
    model_->Close(save_time_);
    model_.reset();
    ReturnFreedMemory();
    if (tell_) tell_(fmt::format("{} is unloaded", ShownName(name)));
  }

  bool is_at_rest() const override { return service_.is_at_rest(); }
  ModelService& service() { return service_; }
  // At the end of the server, of which it says nothing.
  void Close(std::chrono::milliseconds most_to_save) {
    tell_ = nullptr;
    model_->Close(most_to_save);
  }

 private:
  const std::chrono::milliseconds save_time_;
  std::function<void(const std::string&)> tell_;
  std::unique_ptr<api::Model> model_;
  ModelService service_;
};

SeveralModels::SeveralModels(ModelSource& source, SharingOptions options,
                             const ServiceContext& shared, PostFn load,
                             std::function<void(const std::string&)> tell)
    : source_(source),
      options_(std::move(options)),
      shared_(shared),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      tell_(std::move(tell)),
      pool_(*this,
            {.budget_bytes =
                 options_.memory_bytes - std::min(options_.memory_bytes, options_.program_bytes),
             .most_waiting = static_cast<size_t>(options_.queue),
             .unload_after = options_.unload_after},
            shared.post, std::move(load)) {}

uint64_t SeveralModels::Measure(const ModelKey& key) { return source_.Measure(key); }

std::shared_ptr<Resident> SeveralModels::Load(const ModelKey& key, uint64_t bytes,
                                              const std::atomic<bool>& cancel) {
  auto model = std::make_shared<ServedModel>(*this, source_.Load(key, bytes, cancel), key.name);
  if (tell_) {
    tell_(fmt::format("{} is loaded, in {}", ShownName(key.name), FormatSize(bytes)));
  }
  return model;
}

std::vector<std::string> SeveralModels::Names() {
  std::vector<std::string> names;
  for (ModelKey& key : Asked([&] { return source_.List(); })) names.push_back(std::move(key.name));
  return names;
}

ModelKey SeveralModels::Named(const std::string& asked) {
  std::vector<ModelKey> found = Asked([&] { return source_.Find(asked); });
  if (found.empty()) {
    pool_.Forget(asked);
    throw NoSuchModel(asked, Names());
  }
  if (found.size() == 1) return std::move(found.front());
  std::vector<std::string> names;
  for (ModelKey& key : found) names.push_back(std::move(key.name));
  throw RequestError(
      Status::kNotFound,
      fmt::format("the model '{}' may be one of {}: say which", ShownName(asked), NameList(names)),
      "model", "model_not_found");
}

ModelKey SeveralModels::KeyOf(const std::string& asked) {
  if (!asked.empty()) return Named(asked);
  const std::vector<std::string> loaded = pool_.shelf().Loaded();
  if (loaded.size() == 1) return Named(loaded.front());
  if (!options_.default_model.empty()) return Named(options_.default_model);
  const std::vector<std::string> names = Names();
  if (names.size() == 1) return Named(names.front());
  throw RequestError(Status::kBadRequest, "model: say which: this server has " + NameList(names),
                     "model", "missing_model");
}

AnswerFn SeveralModels::With(const std::string& asked, UseFn use) {
  return [this, asked, use = std::move(use)](std::shared_ptr<Reply> reply) {
    const ModelKey key = KeyOf(asked);
    auto wait = std::make_shared<ModelWait>(pool_, std::move(reply));
    wait->Start(key, [use](Resident& resident) {
      ModelService& service = static_cast<ServedModel&>(resident).service();
      // However long its body is.
      return service.Beside([use, &service] { return use(service); });
    });
    return wait;
  };
}

SeveralModels::ServedModel* SeveralModels::FindLoaded(const std::string& name) const {
  return static_cast<ServedModel*>(pool_.shelf().FindLoaded(name));
}

AnswerFn SeveralModels::WithLoaded(const std::string& asked, UseFn use) {
  return [this, asked, use = std::move(use)](std::shared_ptr<Reply> reply) {
    const std::string name = KeyOf(asked).name;
    ServedModel* const model = FindLoaded(name);
    if (model == nullptr) {
      throw RequestError(
          Status::kNotFound,
          fmt::format("the model '{}' is not loaded: a request for it loads it", ShownName(name)),
          "model", "model_not_loaded");
    }
    return use(model->service())(std::move(reply));
  };
}

ModelEntry SeveralModels::EntryOf(const std::string& name) const {
  ModelEntry entry = {.name = name, .created = created_};
  if (ServedModel* const model = FindLoaded(name)) {
    entry.context = model->service().model().info().context;
    entry.is_loaded = true;
  }
  return entry;
}

std::vector<ModelEntry> SeveralModels::List() {
  const std::vector<std::string> names = Names();
  for (const std::string& loaded : pool_.shelf().Loaded()) {
    if (std::find(names.begin(), names.end(), loaded) == names.end()) pool_.Forget(loaded);
  }
  std::vector<ModelEntry> entries;
  for (const std::string& name : names) entries.push_back(EntryOf(name));
  return entries;
}

ModelEntry SeveralModels::Find(const std::string& name) { return EntryOf(Named(name).name); }

ModelsState SeveralModels::State() const {
  ModelsState state;
  state.memory_limit_bytes = options_.memory_bytes;
  state.resident_bytes = ResidentBytes();
  state.counts = ModelCounts{.program_bytes = options_.program_bytes,
                             .moving_bytes = pool_.moving_bytes(),
                             .waiting = static_cast<int64_t>(pool_.waiting()),
                             .loads = pool_.counts().loads,
                             .failed_loads = pool_.counts().failed_loads,
                             .unloads = pool_.counts().unloads};
  for (const std::string& name : pool_.shelf().Loaded()) {
    api::Stats stats = FindLoaded(name)->service().model().stats();
    // Each ledger has the whole program, which is there once.
    uint64_t& program = stats.ledger["program"];
    program -= std::min(program, options_.program_bytes);
    state.models.push_back({.label = name, .stats = std::move(stats)});
  }
  return state;
}

bool SeveralModels::is_idle() const {
  if (!pool_.is_idle()) return false;
  const std::vector<std::string> loaded = pool_.shelf().Loaded();
  return std::all_of(loaded.begin(), loaded.end(),
                     [&](const std::string& name) { return FindLoaded(name)->is_at_rest(); });
}

void SeveralModels::Prepare(const std::function<void(const RequestError* failure)>& done) {
  if (options_.default_model.empty()) return done(nullptr);
  try {
    first_ticket_ = pool_.Ask(Named(options_.default_model),
                              {.on_ready = [done](Resident&) { done(nullptr); },
                               .on_failed = [done](const RequestError& error) { done(&error); }});
  } catch (const RequestError& error) {
    done(&error);
  }
}

void SeveralModels::Stop() {
  pool_.Cancel(first_ticket_);
  pool_.Stop();
}

void SeveralModels::Close(Clock::time_point until) {
  // All at a time, so that one that saves much does not take the others' time.
  std::vector<std::future<void>> closing;
  for (std::shared_ptr<Resident>& resident : pool_.TakeAll()) {
    closing.push_back(
        std::async(std::launch::async, [until, model = std::move(resident)]() mutable {
          static_cast<ServedModel&>(*model).Close(Until(until));
          model.reset();
        }));
  }
  for (std::future<void>& one : closing) one.get();
}

}  // namespace hearth::serve
