#include "engine/batch_scheduler.h"

#include <algorithm>
#include <new>
#include <set>
#include <utility>

namespace hearth {
namespace {

// Tokens of prompts in a pass while others generate, so that they need not wait long. Where FFNs
// are streamed a pass reads nearly all of them however few its tokens are, so it takes many.
constexpr int64_t kPromptTokensInCompany = 64;

double MsOf(const Stopwatch& watch) { return watch.Seconds() * 1000; }

}  // namespace

// A request and how far it has come.
struct BatchScheduler::Request {
  BatchRequest asked;
  KvSequence kv;
  std::vector<TokenId> history;          // the prompt and what was generated
  std::optional<Generation> generation;  // none of an embedding
  int64_t most_tokens = 0;               // that the KV cache may have to hold
  bool has_begun = false;                // a pass has computed some of it, or is about to
  bool is_generating = false;
  bool has_ended = false;
  int64_t rows = 0;          // in the pass
  std::vector<double> sums;  // of last hidden states
  Stopwatch watch;           // since it was added, later since its phase began
  BatchOutcome outcome;

  Request(Engine& engine, BatchRequest request)
      : asked(std::move(request)), kv(engine.kv_pool()), history(asked.prompt) {
    const auto prompt = std::ssize(asked.prompt);
    outcome.prompt_tokens = prompt;
    most_tokens = prompt;
    if (asked.wants_embedding) return;
    most_tokens += std::min(asked.generate.max_tokens, engine.context() - prompt);
    generation.emplace(engine.model().tokenizer(), asked.generate, engine.context());
  }

  int64_t left() const { return std::ssize(history) - kv.length(); }
  std::span<const TokenId> NextTokens() const {
    return std::span(history).subspan(static_cast<size_t>(kv.length()), static_cast<size_t>(rows));
  }
  std::span<const TokenId> cached() const {
    return std::span(history).first(static_cast<size_t>(kv.length()));
  }
  int64_t pages_to_come() const { return kv.PagesToAppend(most_tokens - kv.length()); }
};

BatchScheduler::BatchScheduler(Engine& engine, const BatchLimits& limits)
    : engine_(engine), limits_(limits), prefixes_(limits.most_prefixes) {
  const int64_t most = engine.forward().limits().max_tokens;
  if (limits.most_running < 1 || limits.most_running > most) {
    throw Error(ErrorCode::kInvalidArgument, "scheduler", "requests that run at once",
                "1 to " + std::to_string(most), std::to_string(limits.most_running));
  }
}

BatchScheduler::~BatchScheduler() = default;

void BatchScheduler::Check(const BatchRequest& request) const {
  const auto count = std::ssize(request.prompt);
  if (count == 0) throw Error(ErrorCode::kInvalidArgument, "prompt", "it has no tokens");
  if (count > engine_.context()) {
    throw Error(ErrorCode::kContextFull, "prompt", "tokens",
                "at most " + std::to_string(engine_.context()) + " (the context)",
                std::to_string(count));
  }
  const auto vocabulary = static_cast<int64_t>(engine_.model().tokenizer().vocab_size());
  for (const TokenId token : request.prompt) {
    if (token >= 0 && token < vocabulary) continue;
    throw Error(ErrorCode::kInvalidArgument, "prompt", "token id",
                "0 to " + std::to_string(vocabulary - 1), std::to_string(token));
  }
  if (request.wants_embedding) return;
  ValidateSampling(request.generate.sampling);
  if (request.generate.max_tokens < 1) {
    throw Error(ErrorCode::kInvalidArgument, "request", "tokens to generate", "at least 1",
                std::to_string(request.generate.max_tokens));
  }
}

void BatchScheduler::Add(BatchRequest request) {
  waiting_.push_back(std::make_unique<Request>(engine_, std::move(request)));
}

void BatchScheduler::Step() {
  StartWaiting();
  Decode();
  Prefill();
}

void BatchScheduler::CancelAll() {
  DropCancelled(waiting_, true);
  DropCancelled(running_, true);
}

void BatchScheduler::DropCancelled(Requests& requests, bool all) {
  requests.remove_if([&](const std::unique_ptr<Request>& request) {
    if (!all && !request->asked.generate.IsCancelled()) return false;
    request->outcome.finish_reason = FinishReason::kCancelled;
    if (request->generation) {
      request->generation->Finish();
      if (request->generation->has_text()) ShowText(*request);
    }
    End(*request);
    return true;
  });
}

// Pages that belong to running requests, or will if they generate all they may.
int64_t BatchScheduler::promised_pages() const {
  std::set<const std::byte*> held;
  int64_t to_come = 0;
  for (const auto& request : running_) {
    held.insert(request->kv.pages().begin(), request->kv.pages().end());
    to_come += request->pages_to_come();
  }
  return std::ssize(held) + to_come;
}

int64_t BatchScheduler::FreePages() const {
  return engine_.kv_pool().num_pages() - promised_pages();
}

void BatchScheduler::StartWaiting() {
  DropCancelled(waiting_);
  DropCancelled(running_);
  while (!waiting_.empty() && std::ssize(running_) < limits_.most_running &&
         KvLayout::PagesFor(waiting_.front()->most_tokens) <= FreePages()) {
    running_.splice(running_.end(), waiting_, waiting_.begin());
  }
}

// Takes pages from sequences that have ended, as many as the pass will need.
void BatchScheduler::MakeRoom(const Pass& pass) {
  int64_t needed = 0;
  for (const Request* request : pass) needed += request->kv.PagesToAppend(request->rows);
  while (engine_.kv_pool().free_pages() < needed && prefixes_.EvictOldest()) {
  }
}

// The next tokens of these requests, `rows` of each. False where that failed: they have ended then,
// or nobody waits for them.
bool BatchScheduler::RunPass(const Pass& pass, ActivationSelector& selector) {
  Forward& forward = engine_.forward();
  forward.StopWhen([&pass] {
    return std::all_of(pass.begin(), pass.end(), [](const Request* request) {
      return request->asked.generate.IsCancelled();
    });
  });
  const auto fail = [&](const Error& error) {
    if (error.code() == ErrorCode::kCancelled) return;
    ++counts_.failed_passes;
    for (Request* request : pass) Fail(*request, error);
    const bool is_files = error.code() == ErrorCode::kIo || error.code() == ErrorCode::kCorrupt;
    if (is_files) fault_ = error.what();
  };
  try {
    MakeRoom(pass);
    std::vector<BatchSequence> batch;
    for (Request* request : pass) batch.push_back({&request->kv, request->NextTokens()});
    forward.Run(batch, selector);
    forward.StopWhen({});
    fault_.clear();
    return true;
  } catch (const Error& error) {
    fail(error);
  } catch (const std::bad_alloc&) {
    fail(Error(ErrorCode::kOutOfBudget, "batch", "the system has no more memory to give"));
  }
  forward.StopWhen({});
  return false;
}

void BatchScheduler::Decode() {
  Pass pass;
  for (const auto& request : running_) {
    if (!request->is_generating) continue;
    request->rows = 1;
    pass.push_back(request.get());
  }
  if (pass.empty()) return;
  const Stopwatch watch;
  const StreamCounts before = engine_.stream_counts();
  const bool worked = RunPass(pass, engine_.selector());
  StreamCounts read = engine_.stream_counts();
  counts_.decode_stream += read -= before;
  ++counts_.decode_passes;
  if (worked) {
    counts_.decode_tokens += std::ssize(pass);
    TakeTokens(pass);
  }
  counts_.decode_seconds += watch.Seconds();
  RemoveEnded();
}

// Whether a prompt that is about to be computed begins like this one: it will be there to share.
bool BatchScheduler::WaitsForPrefix(const Request& request, const Pass& pass) const {
  if (request.has_begun || request.asked.wants_embedding) return false;
  const int64_t known = prefixes_.LongestCommon(request.history);
  for (const auto& other : running_) {
    if (other.get() == &request) return false;  // those behind wait for this one
    const bool is_in_prompt = !other->is_generating && other->has_begun;
    if (!is_in_prompt && std::find(pass.begin(), pass.end(), other.get()) == pass.end()) continue;
    const int64_t common = CommonPrefix(other->history, request.history);
    if (common >= known + KvLayout::kPageTokens) return true;
  }
  return false;
}

// Lets a prompt that has not begun start from the longest beginning that is in the KV cache.
void BatchScheduler::SharePrefix(Request& request) {
  // Of single neurons a few tokens are computed in another way than those of a prompt: enough are
  // left that repeating a request gives the same bits.
  const int64_t fewest = engine_.forward().limits().ffn_of_neurons ? Forward::kPrefillTokens : 1;
  const auto prompt = std::span<const TokenId>(request.history);
  if (request.asked.wants_embedding || std::ssize(prompt) <= fewest) return;
  const auto sharable = prompt.first(prompt.size() - static_cast<size_t>(fewest));
  const Request* best = nullptr;
  int64_t longest = prefixes_.LongestCommon(sharable);
  for (const auto& other : running_) {
    if (other.get() == &request) continue;
    const int64_t common = CommonPrefix(other->cached(), sharable);
    if (common <= longest) continue;
    longest = common;
    best = other.get();
  }
  if (longest == 0) return;
  request.kv = best != nullptr ? best->kv.Fork() : std::move(*prefixes_.Fork(sharable));
  request.kv.Truncate(longest);
  // To go on from the middle of a shared page takes a copy of it; where that was not promised,
  // whole pages are shared.
  if (FreePages() < 0) request.kv.Truncate(longest / KvLayout::kPageTokens * KvLayout::kPageTokens);
  request.outcome.reused_tokens = request.kv.length();
  counts_.reused_tokens += request.kv.length();
}

// In the order of arrival, as many as a pass takes.
BatchScheduler::Pass BatchScheduler::ChoosePrompts() {
  const bool in_company = std::any_of(running_.begin(), running_.end(),
                                      [](const auto& request) { return request->is_generating; });
  int64_t room = engine_.forward().limits().max_tokens;
  if (in_company && !engine_.is_streamed()) room = std::min(room, kPromptTokensInCompany);
  Pass pass;
  for (const auto& request : running_) {
    if (request->is_generating || WaitsForPrefix(*request, pass)) continue;
    // A few tokens of a long prompt are not worth a chunk of their own.
    const bool fits = request->left() <= room || room >= 2 * Forward::kPrefillTokens;
    if (room == 0 || (!pass.empty() && !fits)) break;
    if (!std::exchange(request->has_begun, true)) {
      request->outcome.wait_ms = MsOf(std::exchange(request->watch, {}));
      SharePrefix(*request);
    }
    request->rows = Forward::ChunkOf(request->left(), room);
    room -= request->rows;
    pass.push_back(request.get());
  }
  return pass;
}

void BatchScheduler::Prefill() {
  const Pass pass = ChoosePrompts();
  if (pass.empty()) return;
  const Stopwatch watch;
  if (RunPass(pass, engine_.prefill_selector())) {
    int64_t first_row = 0;
    for (Request* request : pass) {
      counts_.prompt_tokens += request->rows;
      if (request->asked.wants_embedding) AddToEmbedding(*request, first_row);
      first_row += request->rows;
    }
    TakeTokens(pass);
  }
  ++counts_.prefill_passes;
  counts_.prefill_seconds += watch.Seconds();
  RemoveEnded();
}

// What follows the last row of each request of the last pass that has no more tokens to compute.
// Logits of neighbouring rows are computed together.
void BatchScheduler::TakeTokens(const Pass& pass) {
  Pass next;  // whose last rows are neighbours and end before `row`
  int64_t row = 0;
  const auto take = [&] {
    if (next.empty()) return;
    const auto count = std::ssize(next);
    const FloatView logits = engine_.forward().Logits(row - count, count);
    for (int64_t i = 0; i < count; ++i) {
      TakeToken(*next[static_cast<size_t>(i)], {logits.row(i), static_cast<size_t>(logits.cols)});
    }
    next.clear();
  };
  for (Request* request : pass) {
    if (request->rows > 1 || std::ssize(next) == Forward::kMaxLogitRows) take();
    row += request->rows;
    if (request->left() == 0 && !request->is_generating) EndPrompt(*request);
    if (request->left() > 0 || request->has_ended) {
      row -= request->rows;
      take();
      row += request->rows;
    } else {
      next.push_back(request);
    }
  }
  take();
}

void BatchScheduler::EndPrompt(Request& request) {
  request.outcome.prefill_ms = MsOf(std::exchange(request.watch, {}));
  if (!request.asked.wants_embedding) {
    request.is_generating = true;
    return;
  }
  for (const double sum : request.sums) {
    request.outcome.embedding.push_back(
        static_cast<float>(sum / static_cast<double>(request.outcome.prompt_tokens)));
  }
  request.outcome.finish_reason = FinishReason::kStop;
  End(request);
}

void BatchScheduler::TakeToken(Request& request, std::span<const float> logits) {
  try {
    Generation& generation = *request.generation;
    const size_t before = generation.tokens().size();
    const bool goes_on = generation.Take(logits, request.history);
    if (!goes_on) {
      generation.Finish();
      request.outcome.finish_reason = generation.finish_reason();
    }
    if (generation.tokens().size() > before) ShowText(request);
    if (!goes_on) End(request);
  } catch (const Error& error) {
    Fail(request, error);
  }
}

void BatchScheduler::ShowText(Request& request) {
  const std::string text = request.generation->TakeText();
  if (request.asked.on_token) request.asked.on_token(text, request.generation->TakeScores());
}

void BatchScheduler::AddToEmbedding(Request& request, int64_t first_row) {
  const FloatView states = engine_.forward().FinalStates();
  request.sums.resize(static_cast<size_t>(states.cols));
  for (int64_t row = first_row; row < first_row + request.rows; ++row) {
    for (size_t i = 0; i < request.sums.size(); ++i) {
      request.sums[i] += static_cast<double>(states.row(row)[i]);
    }
  }
}

// Tells the outcome, and keeps what was computed for those that go on from it.
void BatchScheduler::End(Request& request) {
  BatchOutcome& outcome = request.outcome;
  if (request.is_generating) outcome.decode_ms = MsOf(request.watch);
  if (request.generation) outcome.generated = request.generation->tokens();
  if (!outcome.error && !request.asked.wants_embedding) {
    const std::span<const TokenId> cached = request.cached();
    prefixes_.Insert({cached.begin(), cached.end()}, std::move(request.kv));
  }
  request.kv.Truncate(0);
  request.has_ended = true;
  if (request.asked.on_done) request.asked.on_done(outcome);
}

void BatchScheduler::Fail(Request& request, const Error& error) {
  request.outcome.error = error;
  End(request);
}

void BatchScheduler::RemoveEnded() {
  running_.remove_if([](const auto& request) { return request->has_ended; });
}

}  // namespace hearth
