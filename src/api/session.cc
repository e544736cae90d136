#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "hearth/hearth.hpp"

namespace hearth::api {

// What a session generates, for those who cancel it.
struct Session::Current {
  std::mutex mutex;
  Ticket ticket;              // guarded by mutex; of nothing where nothing is generated
  bool is_cancelled = false;  // guarded by mutex; perhaps before there is a ticket
};

Session::Session(Model& model) : model_(&model), current_(std::make_shared<Current>()) {}

void Session::Cancel() {
  const std::lock_guard lock(current_->mutex);
  current_->is_cancelled = true;
  current_->ticket.Cancel();
}

void Session::Truncate(int64_t length) {
  history_.resize(static_cast<size_t>(std::clamp<int64_t>(length, 0, std::ssize(history_))));
}

GenerateResult Session::Generate(GenerateRequest request,
                                 const std::function<bool(std::string_view text)>& on_text) {
  const int64_t context = model_->info().context;  // a closed model may be gone afterwards
  std::vector<TokenId> prompt = history_;
  prompt.insert(prompt.end(), request.prompt.begin(), request.prompt.end());
  request.prompt = prompt;
  {
    const std::lock_guard lock(current_->mutex);
    current_->ticket = {};
    current_->is_cancelled = false;
  }
  const auto set_ticket = [this](const Ticket& ticket) {
    const std::lock_guard lock(current_->mutex);
    current_->ticket = ticket;
    if (current_->is_cancelled) ticket.Cancel();
  };
  GenerateResult result = model_->Generate(request, on_text, set_ticket);
  prompt.insert(prompt.end(), result.outcome.generated.begin(), result.outcome.generated.end());
  history_ = std::move(prompt);
  Truncate(context);  // the last token of a full context is not remembered
  return result;
}

GenerateResult Session::Replace(GenerateRequest request,
                                const std::function<bool(std::string_view text)>& on_text) {
  std::vector<TokenId> held = std::exchange(history_, {});
  try {
    return Generate(std::move(request), on_text);
  } catch (...) {
    history_ = std::move(held);
    throw;
  }
}

}  // namespace hearth::api
