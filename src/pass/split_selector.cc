#include "pass/split_selector.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

size_t ListBytes(int64_t rest) { return static_cast<size_t>(rest) * sizeof(int32_t); }

// Copies the neurons from `first` on of an ascending list, numbered from there, to `out`.
std::span<const int32_t> RestOf(std::span<const int32_t> list, int64_t first, int32_t* out) {
  const auto begin = std::lower_bound(list.begin(), list.end(), first);
  int32_t* end = out;
  for (auto neuron = begin; neuron != list.end(); ++neuron) {
    *end++ = *neuron - static_cast<int32_t>(first);
  }
  return {out, end};
}

}  // namespace

SplitSelector::SplitSelector(Budget& budget, std::vector<int64_t> firsts, int64_t rest,
                             int64_t max_tokens, AnswerFn on_answer)
    : memory_(budget, "activations", ListBytes(rest) * static_cast<size_t>(max_tokens + 1)),
      firsts_(std::move(firsts)),
      rest_(rest),
      max_tokens_(max_tokens),
      on_answer_(std::move(on_answer)) {
  guess_.room = memory_.As<int32_t>(0).data() + rest * max_tokens;
}

uint64_t SplitSelector::ChargedBytes(int64_t rest, int64_t max_tokens) {
  return Buffer::ChargedBytes(ListBytes(rest) * static_cast<size_t>(max_tokens + 1));
}

void SplitSelector::Select(const SelectionQuery& query, ActiveSets& out) {
  whole_->Select(query, answer_);
  on_answer_(query, answer_);
  if (answer_.all()) {
    out.SetAll();
    return;
  }
  const std::span<const std::span<const int32_t>> lists = answer_.lists();
  if (std::ssize(lists) > max_tokens_) {
    throw Error(ErrorCode::kInternal, "SplitSelector", "lists of more tokens than it has room for");
  }
  const std::span<std::span<const int32_t>> rests = out.ResetLists(lists.size());
  int32_t* room = memory_.As<int32_t>(0).data();
  for (size_t i = 0; i < lists.size(); ++i, room += rest_) {
    rests[i] = RestOf(lists[i], firsts_.at(static_cast<size_t>(query.layer)), room);
  }
}

ListGuess* SplitSelector::BeginGuess(const SelectionQuery& query) {
  guess_.whole = whole_->BeginGuess(query);
  guess_.first = firsts_.at(static_cast<size_t>(query.layer));
  return guess_.whole == nullptr ? nullptr : &guess_;
}

ListGuess::Step SplitSelector::RestOfGuess::TakeStep() noexcept {
  const Step step = whole->TakeStep();
  if (step == Step::kLast) listed_ = RestOf(whole->listed(), first, room);
  return step;
}

}  // namespace hearth
