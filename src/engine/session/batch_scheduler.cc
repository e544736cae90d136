#include "engine/session/batch_scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>

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

bool IsGenerating(const RunningRequests& running) {
  return std::any_of(running.begin(), running.end(),
                     [](const auto& request) { return request->is_generating; });
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
    : engine_(engine),
      limits_(limits),
      sessions_(sessions),
      prefixes_(engine, running_, limits.most_prefixes, sessions) {
  // Each adds a token to a pass, which has no more tokens than the context.
  const int64_t most = engine.pass().limits().max_tokens;
  if (limits.most_running < 1 || limits.most_running > most) {
    throw Error(ErrorCode::kInvalidArgument, Field{"parallel"},
                fmt::format("requests that run together with a context of {}", engine.context()),
                fmt::format("1 to {}", most), std::to_string(limits.most_running));
  }
}

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
  RunningRequests added;
  const std::optional<Error> error = ErrorOf([&] {
    added.emplace_back();
    added.back() = std::make_unique<RunningRequest>(engine_, request);
  });
  if (!error) return waiting_.splice(waiting_.end(), added);
  if (!request.on_done) return;
  BatchOutcome outcome;
  outcome.error = error;
  ErrorOf([&] { request.on_done(outcome); });
}

void BatchScheduler::Step() {
  StartWaiting();
  const int64_t passes = counts_.decode_passes + counts_.prefill_passes;
  const bool generated = IsGenerating(running_);
  if (generated) Decode();
  if (!generated || IsGenerating(running_)) Prefill();
  if (sessions_ == nullptr) return;
  prefixes_.SaveAhead();
  const bool has_worked = counts_.decode_passes + counts_.prefill_passes > passes;
  if (!has_worked && !running_.empty()) sessions_->WaitForAny(kRestoreWait);
}

bool BatchScheduler::has_begun() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const auto& request) { return request->has_begun; });
}

void BatchScheduler::CancelAll() {
  DropCancelled(waiting_, true);
  DropCancelled(running_, true);
}

int64_t BatchScheduler::SaveSessions(std::chrono::steady_clock::time_point until) {
  return prefixes_.SaveAll(until);
}

void BatchScheduler::FailAll(const Error& error) {
  for (RunningRequests* const requests : {&waiting_, &running_}) {
    for (const auto& request : *requests) {
      if (!request->has_ended) Fail(*request, error);
    }
    requests->clear();
  }
}

void BatchScheduler::DropCancelled(RunningRequests& requests, bool all) {
  requests.remove_if([&](const std::unique_ptr<RunningRequest>& request) {
    if (!all && !request->asked.generate.IsCancelled()) return false;
    request->outcome.finish_reason = FinishReason::kCancelled;
    request->outcome.error = ErrorOf([&] { request->TellRest(); });
    End(*request);
    return true;
  });
}

void BatchScheduler::StartWaiting() {
  DropCancelled(waiting_);
  DropCancelled(running_);
  while (!waiting_.empty() && std::ssize(running_) < limits_.most_running &&
         KvLayout::PagesFor(waiting_.front()->most_tokens) <= prefixes_.unpromised_pages()) {
    running_.splice(running_.end(), waiting_, waiting_.begin());
  }
}

// The next tokens of these requests, `rows` of each. False where that failed: they have ended then,
// or nobody waits for them. One whose KV pages could not be spilled or read leaves the pass.
bool BatchScheduler::RunPass(PassKind kind, RequestsOfPass& pass, ActivationSelector& selector) {
  TransformerPass& transformer = engine_.pass();
  KvPool& pool = engine_.kv_pool();
  transformer.StopWhen([&pass] {
    return std::all_of(pass.begin(), pass.end(), [](const RunningRequest* request) {
      return request->asked.generate.IsCancelled();
    });
  });
  pool.NoteFailed(nullptr);
  const std::optional<Error> error = ErrorOf([&] {
    int64_t pages = 0;
    for (const RunningRequest* request : pass) pages += request->kv.PagesToAppend(request->rows);
    prefixes_.MakeRoom(pages);
    std::vector<BatchSequence> batch;
    for (RunningRequest* request : pass) {
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
  const auto alone =
      std::find_if(pass.begin(), pass.end(),
                   [failed](const RunningRequest* request) { return &request->kv == failed; });
  if (alone != pass.end()) {
    Fail(**alone, *error);
    pass.erase(alone);
    return !pass.empty() && RunPass(kind, pass, selector);
  }
  for (RunningRequest* request : pass) Fail(*request, *error);
  const bool is_files = error->code() == ErrorCode::kIo || error->code() == ErrorCode::kCorrupt;
  if (is_files) fault_ = error->what();
  return false;
}

void BatchScheduler::Decode() {
  RequestsOfPass pass;
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
RequestsOfPass BatchScheduler::ChoosePrompts() {
  int64_t room = engine_.pass().limits().max_tokens;
  if (IsGenerating(running_) && !engine_.is_streamed()) {
    room = std::min(room, kPromptTokensInCompany);
  }
  RequestsOfPass pass;
  for (const auto& request : running_) {
    if (request->is_generating || prefixes_.WaitsForPrefix(*request, pass)) continue;
    // A few tokens of a long prompt are not worth a chunk of their own.
    const bool fits = request->left() <= room || room >= 2 * PassShape::kPrefillTokens;
    if (room == 0 || (!pass.empty() && !fits)) break;
    if (prefixes_.IsRestoring(*request)) continue;
    if (!std::exchange(request->has_begun, true)) {
      request->outcome.wait_ms = MsOf(std::exchange(request->watch, {}));
      prefixes_.Share(*request);
      counts_.reused_tokens += request->outcome.reused_tokens;
    }
    request->rows = PassShape::ChunkOf(request->left(), room);
    room -= request->rows;
    pass.push_back(request.get());
  }
  return pass;
}

void BatchScheduler::Prefill() {
  RequestsOfPass pass = ChoosePrompts();
  if (pass.empty()) return;
  const Stopwatch watch;
  if (RunPass(PassKind::kPrefill, pass, engine_.prefill_selector())) {
    const ModelSpec& spec = engine_.model().spec();
    int64_t first_row = 0;
    for (RunningRequest* request : pass) {
      counts_.prompt_tokens += request->rows;
      const auto error = ErrorOf([&] {
        if (request->asked.wants_embedding) {
          request->Pool(engine_.pass(), spec.pooling, first_row);
        }
        if (request->asked.on_prompt) {
          request->ScorePrompt(engine_.pass(), engine_.model().tokenizer().vocab_size(), first_row);
        }
        const auto& tell = request->asked.generate.on_prefill;
        if (tell) tell(request->kv.length(), request->outcome.prompt_tokens);
      });
      if (error) Fail(*request, *error);
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
void BatchScheduler::TakeTokens(const RequestsOfPass& pass) {
  RequestsOfPass next;  // whose last rows are neighbours and end before `row`
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
  for (RunningRequest* request : pass) {
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

void BatchScheduler::EndPrompt(RunningRequest& request) {
  request.outcome.prefill_ms = MsOf(std::exchange(request.watch, {}));
  request.is_generating = !request.asked.wants_embedding;
  const auto error = ErrorOf([&] {
    if (request.asked.wants_embedding) {
      request.EndEmbedding(engine_.model().spec().pooling);
    } else if (request.asked.on_prompt) {
      request.asked.on_prompt(std::move(request.prompt_scores));
    }
  });
  if (error) {
    NoteBadResult(*error);
    Fail(request, *error);
  } else if (request.asked.wants_embedding) {
    End(request);
  }
}

void BatchScheduler::TakeToken(RunningRequest& request, std::span<const float> logits) {
  bool goes_on = false;
  request.outcome.error = ErrorOf([&] { goes_on = request.Take(logits); });
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

// Keeps what was computed for those that go on from it, and tells the outcome. Does not throw.
void BatchScheduler::End(RunningRequest& request) {
  BatchOutcome& outcome = request.outcome;
  request.has_ended = true;
  if (request.is_generating) outcome.decode_ms = MsOf(request.watch);
  const std::optional<Error> error = ErrorOf([&] {
    if (request.generation) outcome.generated = request.generation->tokens();
  });
  if (error) outcome.error = error;
  if (!outcome.error && !request.asked.wants_embedding) {
    // The answer is good without it.
    ErrorOf([&] { prefixes_.Keep(request); });
  }
  request.kv.Truncate(0);
  request.TellOutcome();
}

void BatchScheduler::Fail(RunningRequest& request, const Error& error) {
  request.outcome.error = error;
  End(request);
}

void BatchScheduler::RemoveEnded() {
  running_.remove_if([](const auto& request) { return request->has_ended; });
}

}  // namespace hearth
