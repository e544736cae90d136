#include "engine/session/batch_scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "engine/session/batch_request.h"
#include "engine/session/prompt.h"

namespace hearth {
namespace {

// Tokens of prompts in a pass while others generate, so that they need not wait long. Where FFNs
// are streamed a pass reads nearly all of them however few its tokens are, so it takes many.
constexpr int64_t kPromptTokensInCompany = 64;

// Where nothing can be computed before a restore ends, and others may come.
constexpr std::chrono::milliseconds kRestoreWait{5};

double MsOf(const Stopwatch& watch) { return watch.Seconds() * 1000; }

// Calls fn, and says what it failed of.
template <typename Fn>
std::optional<Error> ErrorOf(Fn&& fn) {
  try {
    std::forward<Fn>(fn)();
    return std::nullopt;
  } catch (...) {
    return CurrentError();
  }
}

// Who throws there, though asked not to, has what there is; the others go on.
void TellOutcome(const BatchRequest& request, const BatchOutcome& outcome) {
  ErrorOf([&] {
    if (request.on_done) request.on_done(outcome);
  });
}

}  // namespace

Error CurrentError() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kOutOfBudget, "batch", "the system has no more memory to give"};
  } catch (const std::exception& error) {
    return {ErrorCode::kInternal, "batch", error.what()};
  } catch (...) {
    return {ErrorCode::kInternal, "batch", "an unknown error"};
  }
}

BatchScheduler::BatchScheduler(Engine& engine, const BatchLimits& limits, SessionKeeper* sessions)
    : engine_(engine), limits_(limits), sessions_(sessions), prefixes_(limits.most_prefixes) {
  // Each adds a token to a pass, which has no more tokens than the context.
  const int64_t most = engine.pass().limits().max_tokens;
  if (limits.most_running < 1 || limits.most_running > most) {
    throw Error(ErrorCode::kInvalidArgument, Field{"parallel"},
                fmt::format("requests that run together with a context of {}", engine.context()),
                fmt::format("1 to {}", most), std::to_string(limits.most_running));
  }
}

BatchScheduler::~BatchScheduler() = default;

void BatchScheduler::Check(const BatchRequest& request) const {
  const auto count = std::ssize(request.prompt);
  if (count == 0) throw Error(ErrorCode::kInvalidArgument, Field{"prompt"}, "it has no tokens");
  if (count > engine_.context()) {
    throw ContextFull("prompt", engine_.context(), std::to_string(count));
  }
  const auto vocabulary = static_cast<int64_t>(engine_.model().tokenizer().vocab_size());
  for (const TokenId token : request.prompt) {
    if (token >= 0 && token < vocabulary) continue;
    throw Error(ErrorCode::kInvalidArgument, Field{"prompt"}, "token id",
                "0 to " + std::to_string(vocabulary - 1), std::to_string(token));
  }
  if (request.wants_embedding) {
    if (engine_.model().spec().pooling != PoolingKind::kNone) return;
    throw Error(ErrorCode::kUnsupported, engine_.model().path(),
                "it makes no embeddings of texts (pooling_type 0)");
  }
  ValidateSampling(request.generate.sampling);
  if (request.generate.max_tokens < 1) {
    throw Error(ErrorCode::kInvalidArgument, Field{"max_tokens"}, "value", "at least 1",
                std::to_string(request.generate.max_tokens));
  }
}

void BatchScheduler::Add(BatchRequest request) {
  Requests added;
  const std::optional<Error> error = ErrorOf([&] {
    added.emplace_back();
    added.back() = std::make_unique<Request>(engine_, request);
  });
  if (!error) return waiting_.splice(waiting_.end(), added);
  BatchOutcome outcome;
  outcome.error = error;
  TellOutcome(request, outcome);
}

void BatchScheduler::Step() {
  StartWaiting();
  const int64_t passes = counts_.decode_passes + counts_.prefill_passes;
  const bool generated = IsGenerating();
  if (generated) Decode();
  if (!generated || IsGenerating()) Prefill();
  if (sessions_ == nullptr) return;
  SaveAhead();
  const bool has_worked = counts_.decode_passes + counts_.prefill_passes > passes;
  if (!has_worked && !running_.empty()) sessions_->WaitForAny(kRestoreWait);
}

bool BatchScheduler::has_begun() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const auto& request) { return request->has_begun; });
}

bool BatchScheduler::IsGenerating() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const auto& request) { return request->is_generating; });
}

void BatchScheduler::CancelAll() {
  DropCancelled(waiting_, true);
  DropCancelled(running_, true);
}

void BatchScheduler::FailAll(const Error& error) {
  for (Requests* const requests : {&waiting_, &running_}) {
    for (const auto& request : *requests) {
      if (!request->has_ended) Fail(*request, error);
    }
    requests->clear();
  }
}

void BatchScheduler::DropCancelled(Requests& requests, bool all) {
  requests.remove_if([&](const std::unique_ptr<Request>& request) {
    if (!all && !request->asked.generate.IsCancelled()) return false;
    request->outcome.finish_reason = FinishReason::kCancelled;
    request->outcome.error = ErrorOf([&] {
      if (!request->generation) return;
      request->generation->Finish();
      if (request->generation->HasMore()) ShowText(*request);
    });
    End(*request);
    return true;
  });
}

void BatchScheduler::StartWaiting() {
  DropCancelled(waiting_);
  DropCancelled(running_);
  while (!waiting_.empty() && std::ssize(running_) < limits_.most_running &&
         KvLayout::PagesFor(waiting_.front()->most_tokens) <= FreePages()) {
    running_.splice(running_.end(), waiting_, waiting_.begin());
  }
}

// The next tokens of these requests, `rows` of each. False where that failed: they have ended then,
// or nobody waits for them. One whose KV pages could not be spilled or read leaves the pass.
bool BatchScheduler::RunPass(PassKind kind, Pass& pass, ActivationSelector& selector) {
  TransformerPass& transformer = engine_.pass();
  KvPool& pool = engine_.kv_pool();
  transformer.StopWhen([&pass] {
    return std::all_of(pass.begin(), pass.end(), [](const Request* request) {
      return request->asked.generate.IsCancelled();
    });
  });
  pool.NoteFailed(nullptr);
  const std::optional<Error> error = ErrorOf([&] {
    int64_t pages = 0;
    for (const Request* request : pass) pages += request->kv.PagesToAppend(request->rows);
    MakeRoom(pages);
    std::vector<BatchSequence> batch;
    for (Request* request : pass) {
      batch.push_back({&request->kv, request->NextTokens(), &request->asked.adapters});
    }
    transformer.Run({kind, batch}, selector);
  });
  transformer.StopWhen({});
  if (!error) {
    fault_.clear();
    return true;
  }
  if (error->code() == ErrorCode::kCancelled) return false;
  ++counts_.failed_passes;
  const KvSequence* const failed = pool.TakeFailed();
  const auto alone = std::find_if(pass.begin(), pass.end(), [failed](const Request* request) {
    return &request->kv == failed;
  });
  if (alone != pass.end()) {
    Fail(**alone, *error);
    pass.erase(alone);
    return !pass.empty() && RunPass(kind, pass, selector);
  }
  for (Request* request : pass) Fail(*request, *error);
  const bool is_files = error->code() == ErrorCode::kIo || error->code() == ErrorCode::kCorrupt;
  if (is_files) fault_ = error->what();
  return false;
}

void BatchScheduler::Decode() {
  Pass pass;
  for (const auto& request : running_) {
    if (!request->is_generating) continue;
    request->rows = 1;
    pass.push_back(request.get());
  }
  const Stopwatch watch;
  const StreamCounts before = engine_.stream_counts();
  if (map_ != nullptr) map_->Begin(std::ssize(pass));
  engine_.pass().Watch(map_);
  const bool worked = RunPass(PassKind::kDecode, pass, engine_.selector());
  engine_.pass().Watch(nullptr);
  if (map_ != nullptr && worked) map_->Finish();
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

// In the order of arrival, as many as a pass takes.
BatchScheduler::Pass BatchScheduler::ChoosePrompts() {
  int64_t room = engine_.pass().limits().max_tokens;
  if (IsGenerating() && !engine_.is_streamed()) room = std::min(room, kPromptTokensInCompany);
  Pass pass;
  for (const auto& request : running_) {
    if (request->is_generating || WaitsForPrefix(*request, pass)) continue;
    // A few tokens of a long prompt are not worth a chunk of their own.
    const bool fits = request->left() <= room || room >= 2 * PassShape::kPrefillTokens;
    if (room == 0 || (!pass.empty() && !fits)) break;
    if (IsRestoring(*request)) continue;
    if (!std::exchange(request->has_begun, true)) {
      request->outcome.wait_ms = MsOf(std::exchange(request->watch, {}));
      SharePrefix(*request);
    }
    request->rows = PassShape::ChunkOf(request->left(), room);
    room -= request->rows;
    pass.push_back(request.get());
  }
  return pass;
}

void BatchScheduler::Prefill() {
  Pass pass = ChoosePrompts();
  if (pass.empty()) return;
  const Stopwatch watch;
  if (RunPass(PassKind::kPrefill, pass, engine_.prefill_selector())) {
    int64_t first_row = 0;
    for (Request* request : pass) {
      counts_.prompt_tokens += request->rows;
      if (request->asked.wants_embedding) AddToEmbedding(*request, first_row);
      if (request->asked.on_prompt) ScorePrompt(*request, first_row);
      if (!request->has_ended) TellPrefill(*request);
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
    const FloatView logits = engine_.pass().Logits(row - count, count);
    for (int64_t i = 0; i < count; ++i) {
      TakeToken(*next[static_cast<size_t>(i)], {logits.row(i), static_cast<size_t>(logits.cols)});
    }
    next.clear();
  };
  for (Request* request : pass) {
    if (request->rows > 1 || std::ssize(next) == TransformerPass::kMaxLogitRows) take();
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

void BatchScheduler::TellPrefill(Request& request) {
  if (!request.asked.generate.on_prefill) return;
  const auto error = ErrorOf([&] {
    request.asked.generate.on_prefill(request.kv.length(), request.outcome.prompt_tokens);
  });
  if (error) Fail(request, *error);
}

void BatchScheduler::EndPrompt(Request& request) {
  request.outcome.prefill_ms = MsOf(std::exchange(request.watch, {}));
  if (!request.asked.wants_embedding) {
    request.is_generating = true;
    if (!request.asked.on_prompt) return;
    const auto error = ErrorOf([&] { request.asked.on_prompt(std::move(request.prompt_scores)); });
    if (error) Fail(request, *error);
    return;
  }
  if (!std::all_of(request.sums.begin(), request.sums.end(),
                   [](double sum) { return std::isfinite(sum); })) {
    const Error error(ErrorCode::kCorrupt, "model", "its embedding is not numbers");
    NoteBadResult(error);
    return Fail(request, error);
  }
  const bool is_mean = engine_.model().spec().pooling == PoolingKind::kMean;
  const double divisor = is_mean ? static_cast<double>(request.outcome.prompt_tokens) : 1.0;
  for (const double sum : request.sums) {
    request.outcome.embedding.push_back(static_cast<float>(sum / divisor));
  }
  request.outcome.finish_reason = FinishReason::kStop;
  End(request);
}

void BatchScheduler::TakeToken(Request& request, std::span<const float> logits) {
  bool goes_on = false;
  request.outcome.error = ErrorOf([&] {
    Generation& generation = *request.generation;
    const size_t before = generation.tokens().size();
    goes_on = generation.Take(logits, request.history);
    if (!goes_on) {
      generation.Finish();
      request.outcome.finish_reason = generation.finish_reason();
      request.outcome.stop_text = generation.stop_text();
    }
    // An end token adds nothing, but it lets go what was held back.
    if (generation.tokens().size() > before || generation.HasMore()) ShowText(request);
  });
  if (request.outcome.error) NoteBadResult(*request.outcome.error);
  if (!goes_on || request.outcome.error) End(request);
}

// Where a result shows that the model is damaged, what was read of it is read again, and the server
// says so until a pass is good.
void BatchScheduler::NoteBadResult(const Error& error) {
  if (error.code() != ErrorCode::kCorrupt) return;
  fault_ = error.what();
  engine_.ForgetCached();
}

void BatchScheduler::ShowText(Request& request) {
  const std::string text = request.generation->TakeText();
  if (request.asked.on_token) request.asked.on_token(text, request.generation->TakeScores());
}

void BatchScheduler::AddToEmbedding(Request& request, int64_t first_row) {
  const FloatView states = engine_.pass().FinalStates();
  const PoolingKind pooling = engine_.model().spec().pooling;
  int64_t begin = first_row;
  int64_t end = first_row + request.rows;
  if (pooling == PoolingKind::kFirst && request.sums.empty()) end = begin + 1;
  if (pooling == PoolingKind::kFirst && !request.sums.empty()) return;
  if (pooling == PoolingKind::kLast) {
    if (request.left() > 0) return;
    begin = end - 1;
  }
  request.sums.resize(static_cast<size_t>(states.cols));
  for (int64_t row = begin; row < end; ++row) {
    for (size_t i = 0; i < request.sums.size(); ++i) {
      request.sums[i] += static_cast<double>(states.row(row)[i]);
    }
  }
}

// Scores the tokens that follow the request's rows of the last pass, which begin with `first_row`.
void BatchScheduler::ScorePrompt(Request& request, int64_t first_row) {
  const size_t vocabulary = engine_.model().tokenizer().vocab_size();
  const int64_t first_token = request.kv.length() - request.rows;
  const int64_t count = std::min(request.rows, request.outcome.prompt_tokens - 1 - first_token);
  const auto error = ErrorOf([&] {
    for (int64_t done = 0; done < count;) {
      const int64_t some = std::min<int64_t>(count - done, TransformerPass::kMaxLogitRows);
      const FloatView logits = engine_.pass().Logits(first_row + done, some);
      for (int64_t row = 0; row < some; ++row, ++done) {
        const auto next = static_cast<size_t>(first_token + done + 1);
        request.prompt_scores.push_back(
            ScoreToken({logits.row(row), vocabulary}, request.history[next],
                       request.asked.generate.top_logprobs.value_or(0)));
      }
    }
  });
  if (error) Fail(request, *error);
}

// Keeps what was computed for those that go on from it, and tells the outcome. Does not throw.
void BatchScheduler::End(Request& request) {
  BatchOutcome& outcome = request.outcome;
  request.has_ended = true;
  if (request.is_generating) outcome.decode_ms = MsOf(request.watch);
  const std::optional<Error> error = ErrorOf([&] {
    if (request.generation) outcome.generated = request.generation->tokens();
  });
  if (error) outcome.error = error;
  if (!outcome.error && !request.asked.wants_embedding) {
    // The answer is good without it.
    ErrorOf([&] {
      const CachedText cached = request.cached();  // before its sequence moves
      LetGo(prefixes_.Insert(cached, std::move(request.kv)));
    });
  }
  request.kv.Truncate(0);
  TellOutcome(request.asked, outcome);
}

void BatchScheduler::Fail(Request& request, const Error& error) {
  request.outcome.error = error;
  End(request);
}

void BatchScheduler::RemoveEnded() {
  running_.remove_if([](const auto& request) { return request->has_ended; });
}

}  // namespace hearth
