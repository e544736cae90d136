// What stands behind hearth::api::Model: an engine, and the thread that steps its scheduler.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/session/batch_scheduler.h"
#include "engine/session/session_keeper.h"
#include "hearth/hearth.hpp"
#include "text/chat/chat_template.h"
#include "text/grammar/grammar_matcher.h"

namespace hearth::api {

// The same error for users of the library.
Error ToApi(const hearth::Error& error);

// Calls fn; what it throws is thrown as hearth::api::Error.
template <typename Fn>
auto Translated(Fn&& fn) {
  try {
    return std::forward<Fn>(fn)();
  } catch (const hearth::Error& error) {
    throw ToApi(error);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kOutOfBudget, "the system has no more memory to give");
  }
}

struct Ticket::State {
  std::atomic<bool> cancel{false};
};

// Requests wait in an inbox until the thread's next step; only that thread touches the engine.
struct Model::Impl {
  // chat_format: instead of the model's own template. sessions may be null. Throws hearth::Error.
  Impl(std::unique_ptr<Engine> engine, int parallel, int queue,
       std::optional<ChatFormat> chat_format = std::nullopt,
       std::unique_ptr<SessionKeeper> sessions = nullptr);
  ~Impl();
  // Cancels everything; sessions are saved until then, and the thread has ended.
  void Close(std::chrono::steady_clock::time_point save_until);

  const ModelInfo& info() const { return info_; }
  // The tokens of answers that a grammar constrains; sorted when first asked for.
  std::shared_ptr<const SortedVocabulary> sorted_vocabulary() const;
  // What the grammars of all requests may take, those that wait too.
  const std::shared_ptr<GrammarMemory>& grammar_memory() const { return grammar_memory_; }
  const Tokenizer& tokenizer() const { return engine_->model().tokenizer(); }
  const Engine& engine() const { return *engine_; }
  // Throws hearth::Error(kInvalidArgument) for scales that no mix can have.
  AdapterMix MixOf(const std::optional<std::vector<AdapterScale>>& scales) const;
  std::vector<AdapterInfo> adapters() const;
  void SetAdapterScales(const std::vector<AdapterScale>& scales);
  // Throws Error(kUnsupported) where the model has none, Error(kInvalidArgument) where it is
  // broken: all but chatting works then.
  const ChatTemplate& chat_template() const;
  Stats stats() const;
  NeuronPicture WatchNeurons() const;

  // All or none. Throws hearth::Error for a request that can never run, api::Error(kBusy).
  void Start(std::vector<BatchRequest> requests);
  // Gives the request the flag that ends it, and the ticket that raises it.
  static Ticket MakeTicket(BatchRequest& request);

 private:
  void Run();
  bool TakeArrived();
  std::chrono::duration<double> GatheringTime() const;
  void Step();
  void SaveSessions();
  void Publish();
  bool IsWatched() const;
  void PublishPicture();

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SessionKeeper> sessions_;  // may be null
  BatchScheduler scheduler_;
  std::optional<NeuronMap> map_;  // of the thread; what the scheduler draws while somebody looks
  ModelInfo info_;
  std::optional<ChatTemplate> chat_template_;
  // Part of what the memory limit reserves for the server.
  static constexpr size_t kGrammarBytes = size_t{8} << 20;
  const std::shared_ptr<GrammarMemory> grammar_memory_ =
      std::make_shared<GrammarMemory>(kGrammarBytes);
  mutable std::once_flag sorting_;
  mutable std::shared_ptr<const SortedVocabulary> sorted_vocabulary_;
  std::string chat_problem_;  // why a template that is there is none

  std::mutex closing_;  // of who ends the thread; taken before mutex_
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::vector<BatchRequest> inbox_;  // guarded by mutex_
  int64_t open_ = 0;                 // requests that have not ended; guarded by mutex_
  bool stopping_ = false;            // guarded by mutex_
  std::chrono::steady_clock::time_point save_until_;  // guarded by mutex_
  Stats stats_;                                       // guarded by mutex_
  std::vector<float> adapter_scales_;                 // by default; guarded by mutex_
  AdapterMix adapter_mix_;                            // of these; guarded by mutex_
  NeuronPicture picture_;                             // guarded by mutex_
  int64_t most_together_ = 0;  // of the thread: requests since there was last none
  // Until when somebody looks, on the steady clock; 0: nobody asked yet.
  mutable std::atomic<std::chrono::steady_clock::rep> watched_until_{0};
  std::atomic<bool> cancel_all_{false};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace hearth::api
