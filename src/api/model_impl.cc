#include "api/model_impl.h"

#include <algorithm>

#include "base/memory_info.h"

namespace hearth::api {
namespace {

// Passes are drawn so long after somebody asked for a picture.
constexpr std::chrono::seconds kWatchTime{3};
// For saving sessions, where nobody said how long it may take.
constexpr std::chrono::seconds kSaveTime{10};
// More wait for nobody's good.
constexpr int kMostQueued = 100'000;

// What the library says of what went wrong inside.
struct CodePair {
  ErrorCode code;
  hearth::ErrorCode inside;
};
constexpr CodePair kCodes[] = {
    {ErrorCode::kInvalidArgument, hearth::ErrorCode::kInvalidArgument},
    {ErrorCode::kNotFound, hearth::ErrorCode::kNotFound},
    {ErrorCode::kIo, hearth::ErrorCode::kIo},
    {ErrorCode::kCorrupt, hearth::ErrorCode::kCorrupt},
    {ErrorCode::kUnsupported, hearth::ErrorCode::kUnsupported},
    {ErrorCode::kOutOfBudget, hearth::ErrorCode::kOutOfBudget},
    {ErrorCode::kContextFull, hearth::ErrorCode::kContextFull},
    {ErrorCode::kCancelled, hearth::ErrorCode::kCancelled},
    {ErrorCode::kInternal, hearth::ErrorCode::kInternal},
};

void AddSessions(const SessionCounts& counts, Stats& stats) {
  stats.sessions = counts.files;
  stats.session_bytes = counts.bytes;
  stats.sessions_saved = counts.saved;
  stats.sessions_saved_bytes = counts.saved_bytes;
  stats.sessions_restored = counts.restored;
  stats.sessions_restored_bytes = counts.restored_bytes;
  stats.sessions_restored_tokens = counts.restored_tokens;
  stats.sessions_evicted = counts.evicted;
  stats.sessions_evicted_bytes = counts.evicted_bytes;
  stats.sessions_failed = counts.failed;
}

NeuronPicture EmptyPicture(const Engine& engine, const NeuronMap& map) {
  NeuronPicture picture;
  picture.layers = map.num_layers();
  picture.columns = map.num_columns();
  picture.experts = map.num_experts();
  picture.neurons = map.neurons();
  picture.pinned_neurons = engine.streamed() != nullptr
                               ? engine.streamed()->store().plan().pinned_neurons
                               : map.neurons();
  return picture;
}

}  // namespace

const char* ErrorCodeName(ErrorCode code) noexcept {
  if (code == ErrorCode::kBusy) return "busy";  // nothing inside is
  for (const CodePair& pair : kCodes) {
    if (pair.code == code) return hearth::ErrorCodeName(pair.inside).data();
  }
  return "unknown";
}

const char* FinishReasonName(FinishReason reason) noexcept {
  if (reason == FinishReason::kStop) return hearth::FinishReasonName(hearth::FinishReason::kStop);
  if (reason == FinishReason::kLength) {
    return hearth::FinishReasonName(hearth::FinishReason::kLength);
  }
  return hearth::FinishReasonName(hearth::FinishReason::kCancelled);
}

Error ToApi(const hearth::Error& error) {
  const auto* pair = std::find_if(std::begin(kCodes), std::end(kCodes), [&](const CodePair& each) {
    return each.inside == error.code();
  });
  return {pair == std::end(kCodes) ? ErrorCode::kInternal : pair->code, error.what(),
          error.field()};
}

Model::Impl::Impl(std::unique_ptr<Engine> engine, int parallel, int queue,
                  std::optional<ChatFormat> chat_format, std::unique_ptr<SessionKeeper> sessions)
    : engine_(std::move(engine)),
      sessions_(std::move(sessions)),
      scheduler_(*engine_, {.most_running = parallel}, sessions_.get()) {
  if (queue < 0 || queue > kMostQueued) {
    throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{"queue"},
                        "requests that may wait", "0 to " + std::to_string(kMostQueued),
                        std::to_string(queue));
  }
  const hearth::Model& model = engine_->model();
  try {
    chat_template_ = chat_format ? ChatTemplate::BuiltIn(*chat_format)
                                 : ChatTemplate::FromModel(model.metadata(), model.tokenizer());
  } catch (const hearth::Error& error) {
    chat_problem_ = error.what();
  }
  const std::string* architecture = model.metadata().FindString("general.architecture");
  info_ = {.path = model.path(),
           .name = model.name(),
           .architecture = architecture != nullptr ? *architecture : "",
           .mode = FfnModeName(engine_->mode()),
           .instruction_set = engine_->compute().isa(),
           .threads = engine_->threads(),
           .context = engine_->context(),
           .vocab_size = static_cast<int64_t>(model.tokenizer().vocab_size()),
           .embedding_size = model.spec().hidden_size,
           .parallel = parallel,
           .queue = queue,
           .memory_limit_bytes = engine_->budget().limit_bytes(),
           .is_streamed = engine_->is_streamed(),
           .can_chat = chat_template_.has_value(),
           .chat_stop = {}};
  if (chat_template_) info_.chat_stop = chat_template_->StopStrings();
  for (size_t id = 0; id < engine_->adapters().size(); ++id) {
    info_.adapters.push_back(engine_->adapters().at(id).path());
  }
  adapter_scales_ = engine_->adapters().default_weights();
  adapter_mix_ = engine_->adapters().default_mix();
  map_ = engine_->MakeNeuronMap();
  if (map_) picture_ = EmptyPicture(*engine_, *map_);
  Publish();
  thread_ = std::thread([this] { Run(); });
}

std::shared_ptr<const SortedVocabulary> Model::Impl::sorted_vocabulary() const {
  std::call_once(sorting_, [this] {
    sorted_vocabulary_ = std::make_shared<const SortedVocabulary>(tokenizer());
  });
  return sorted_vocabulary_;
}

namespace {

std::vector<hearth::AdapterScale> ToEngine(const std::vector<AdapterScale>& scales) {
  std::vector<hearth::AdapterScale> weights;
  for (const AdapterScale& scale : scales) weights.push_back({scale.id, scale.scale});
  return weights;
}

}  // namespace

AdapterMix Model::Impl::MixOf(const std::optional<std::vector<AdapterScale>>& scales) const {
  if (scales) return engine_->adapters().Mix(ToEngine(*scales));
  const std::lock_guard lock(mutex_);
  return adapter_mix_;
}

std::vector<AdapterInfo> Model::Impl::adapters() const {
  std::vector<AdapterInfo> infos;
  const std::lock_guard lock(mutex_);
  for (size_t id = 0; id < adapter_scales_.size(); ++id) {
    const LoadedAdapter& adapter = engine_->adapters().at(id);
    infos.push_back({adapter.path(), adapter_scales_[id], adapter.bytes()});
  }
  return infos;
}

void Model::Impl::SetAdapterScales(const std::vector<AdapterScale>& scales) {
  AdapterMix mix = engine_->adapters().Mix(ToEngine(scales));
  const std::lock_guard lock(mutex_);
  std::fill(adapter_scales_.begin(), adapter_scales_.end(), 0.0f);
  for (const AdapterScale& scale : scales) {
    adapter_scales_[static_cast<size_t>(scale.id)] = scale.scale;
  }
  adapter_mix_ = std::move(mix);
}

const ChatTemplate& Model::Impl::chat_template() const {
  if (chat_template_) return *chat_template_;
  if (!chat_problem_.empty()) {
    throw hearth::Error(hearth::ErrorCode::kInvalidArgument, info_.name, chat_problem_);
  }
  throw hearth::Error(hearth::ErrorCode::kUnsupported, info_.name,
                      "the model carries no chat template: load it with a chat_format");
}

Model::Impl::~Impl() { Close(std::chrono::steady_clock::now() + kSaveTime); }

void Model::Impl::Close(std::chrono::steady_clock::time_point save_until) {
  const std::lock_guard closing(closing_);
  if (!thread_.joinable()) return;
  cancel_all_ = true;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    save_until_ = save_until;
  }
  work_.notify_one();
  thread_.join();
}

Stats Model::Impl::stats() const {
  Stats stats;
  {
    const std::lock_guard lock(mutex_);
    stats = stats_;
    stats.waiting += std::ssize(inbox_);
  }
  stats.ledger = engine_->budget().Ledger();
  stats.resident_bytes = ResidentBytes();
  if (sessions_) AddSessions(sessions_->counts(), stats);
  return stats;
}

NeuronPicture Model::Impl::WatchNeurons() const {
  watched_until_ = (std::chrono::steady_clock::now() + kWatchTime).time_since_epoch().count();
  const std::lock_guard lock(mutex_);
  return picture_;
}

bool Model::Impl::IsWatched() const {
  const auto until = watched_until_.load(std::memory_order_relaxed);
  return until != 0 && std::chrono::steady_clock::now().time_since_epoch().count() < until;
}

void Model::Impl::PublishPicture() {
  if (!map_ || !map_->is_whole()) return;
  const std::lock_guard lock(mutex_);
  picture_.pass = scheduler_.counts().decode_passes;
  picture_.tokens = map_->tokens();
  const auto copy = [this](NeuronPlace place, std::vector<uint16_t>& to) {
    const std::span<const uint16_t> counts = map_->counts(place);
    to.assign(counts.begin(), counts.end());
  };
  copy(NeuronPlace::kPinned, picture_.pinned);
  copy(NeuronPlace::kCached, picture_.cached);
  copy(NeuronPlace::kRead, picture_.read);
  map_->Begin(0);
}

Ticket Model::Impl::MakeTicket(BatchRequest& request) {
  Ticket ticket;
  ticket.state_ = std::make_shared<Ticket::State>();
  request.generate.cancel = &ticket.state_->cancel;
  // The flag lives as long as the request does.
  request.on_done = [state = ticket.state_, done = std::move(request.on_done)](
                        const BatchOutcome& outcome) { done(outcome); };
  return ticket;
}

void Model::Impl::Start(std::vector<BatchRequest> requests) {
  for (BatchRequest& request : requests) {
    scheduler_.Check(request);
    request.on_done = [this, done = std::move(request.on_done)](const BatchOutcome& outcome) {
      {
        const std::lock_guard guard(mutex_);
        --open_;
      }
      done(outcome);
    };
  }
  const auto count = std::ssize(requests);
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw Error(ErrorCode::kCancelled, "the model is being closed");
    if (open_ + count > info_.parallel + info_.queue) {
      throw Error(ErrorCode::kBusy, "too many requests wait already: try again later");
    }
    inbox_.insert(inbox_.end(), std::make_move_iterator(requests.begin()),
                  std::make_move_iterator(requests.end()));
    open_ += count;
  }
  work_.notify_one();
}

void Model::Impl::Publish() {
  const BatchCounts& counts = scheduler_.counts();
  const StreamCounts all = engine_->stream_counts();
  const std::lock_guard lock(mutex_);
  stats_.running = scheduler_.num_running();
  stats_.waiting = scheduler_.num_waiting();
  stats_.prompt_tokens = counts.prompt_tokens;
  stats_.reused_tokens = counts.reused_tokens;
  stats_.generated_tokens = counts.decode_tokens;
  stats_.prefill_passes = counts.prefill_passes;
  stats_.decode_passes = counts.decode_passes;
  stats_.failed_passes = counts.failed_passes;
  stats_.prefill_seconds = counts.prefill_seconds;
  stats_.decode_seconds = counts.decode_seconds;
  stats_.kv_pages = engine_->kv_pool().num_pages();
  stats_.kv_pages_free = engine_->kv_pool().free_pages();
  stats_.kv_pages_promised = scheduler_.prefixes().promised_pages();
  const KvFlash* const flash = engine_->kv_pool().flash();
  stats_.kv_pages_on_flash = flash == nullptr ? 0 : flash->used_slots();
  stats_.neurons = counts.decode_stream.neurons;
  stats_.neurons_pinned = counts.decode_stream.pinned;
  stats_.neurons_cached = counts.decode_stream.hits;
  stats_.neurons_read = counts.decode_stream.misses;
  stats_.decode_reads = counts.decode_stream.reads;
  stats_.decode_bytes_read = counts.decode_stream.bytes_read;
  stats_.bytes_read = all.bytes_read;
  stats_.fault = scheduler_.fault();
}

void Model::Impl::SaveSessions() {
  if (!sessions_) return;
  std::chrono::steady_clock::time_point until;
  {
    const std::lock_guard lock(mutex_);
    until = save_until_;
  }
  const int64_t lost = scheduler_.SaveSessions(until);
  if (lost > 0) {
    sessions_->Warn(std::to_string(lost) + " sessions are not saved: the time to stop is over");
  }
}

// How long a first request waits for others that may share its pass: a hundredth of what a pass
// over prompts takes, where there were several together before. Clients that ask again as soon as
// they are answered come within some milliseconds; a pass of a streamed model reads all that is on
// storage, however few its tokens.
std::chrono::duration<double> Model::Impl::GatheringTime() const {
  constexpr double kShareOfPass = 0.01, kMostSeconds = 0.02;
  const BatchCounts& counts = scheduler_.counts();
  if (most_together_ < 2 || counts.prefill_passes == 0) return {};
  const double pass = counts.prefill_seconds / static_cast<double>(counts.prefill_passes);
  return std::chrono::duration<double>(std::min(kShareOfPass * pass, kMostSeconds));
}

// Moves the inbox to the scheduler. False at the end, when nothing is left.
bool Model::Impl::TakeArrived() {
  std::vector<BatchRequest> arrived;
  {
    std::unique_lock lock(mutex_);
    const bool is_idle = scheduler_.is_idle();
    if (is_idle) work_.wait(lock, [this] { return stopping_ || !inbox_.empty(); });
    if (!scheduler_.has_begun()) {
      work_.wait_for(lock, GatheringTime(),
                     [this] { return stopping_ || std::ssize(inbox_) >= info_.parallel; });
    }
    if (is_idle) most_together_ = 0;
    if (stopping_ && inbox_.empty() && scheduler_.is_idle()) return false;
    arrived.swap(inbox_);
    stats_.waiting += std::ssize(arrived);  // no moment without them
  }
  for (BatchRequest& request : arrived) scheduler_.Add(std::move(request));
  return true;
}

void Model::Impl::Step() {
  if (cancel_all_) scheduler_.CancelAll();
  scheduler_.StartWaiting();
  most_together_ = std::max(most_together_, scheduler_.num_running());
  Publish();
  scheduler_.Watch(map_ && IsWatched() ? &*map_ : nullptr);
  scheduler_.Step();
  Publish();
  PublishPicture();
}

void Model::Impl::Run() {
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = TakeArrived();
      if (goes_on) Step();
    } catch (...) {
      scheduler_.FailAll(CurrentError());
    }
  }
  try {
    SaveSessions();
  } catch (...) {
    // Nobody is left to tell: what is not saved is computed again.
  }
}

}  // namespace hearth::api
