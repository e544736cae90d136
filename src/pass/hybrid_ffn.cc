#include "pass/hybrid_ffn.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/elementwise.h"
#include "pass/neuron_ffn.h"

namespace hearth {
namespace {

int64_t TokensOfLaunch(const PassWidths& widths) {
  return std::min(widths.tokens, HybridFfn::kTokensOfLaunch);
}

size_t OutNumbers(const PassWidths& widths) {
  return static_cast<size_t>(widths.tokens * widths.hidden);
}

size_t HeadNumbers(const PassWidths& widths) {
  return static_cast<size_t>(TokensOfLaunch(widths) * widths.most_on_device);
}

// Floats, lists and counts, four bytes each.
size_t HybridBytes(const PassWidths& widths) {
  return sizeof(int32_t) *
         (OutNumbers(widths) + HeadNumbers(widths) + static_cast<size_t>(TokensOfLaunch(widths)));
}

}  // namespace

// Tells an observer of whole FFNs what both sides do.
class HybridFfn::WholeObserver final : public PassObserver {
 public:
  void Begin(PassObserver* whole, int64_t rows) {
    whole_ = whole;
    of_device_.resize(static_cast<size_t>(rows));
  }
  // `first`: of the FFN, the neurons on the device.
  void BeginCall(const FfnCall& call, int64_t first) {
    tokens_ = call.tokens;
    first_ = static_cast<int32_t>(first);
  }
  DeviceObserved& OfRow(int64_t row) { return of_device_[static_cast<size_t>(row)]; }

  void OnFfnInput(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                  FloatView residual, FloatView input) override {
    whole_->OnFfnInput(layer, expert, tokens, residual, input);
  }

  void OnFfnNeurons(const NeuronObservation& rest) override {
    if (first_ == 0) return whole_->OnFfnNeurons(rest);
    const auto row = std::lower_bound(tokens_.begin(), tokens_.end(), rest.token) - tokens_.begin();
    const DeviceObserved& device = OfRow(row);
    NeuronObservation whole = rest;
    fired_ = device.fired;
    active_ = device.active;
    factors_ = device.factors;
    for (const int32_t neuron : rest.fired) fired_.push_back(first_ + neuron);
    for (const int32_t neuron : rest.active) active_.push_back(first_ + neuron);
    factors_.insert(factors_.end(), rest.factors.begin(), rest.factors.end());
    whole.listed.reset();
    if (device.listed) whole.listed = *device.listed;
    whole.all.gate += first_;
    whole.all.up = std::ssize(fired_);
    whole.all.active = std::ssize(active_);
    whole.fired = fired_;
    whole.active = active_;
    whole.factors = factors_;
    whole_->OnFfnNeurons(whole);
  }

 private:
  int32_t first_ = 0;
  PassObserver* whole_ = nullptr;
  std::span<const int64_t> tokens_;
  std::vector<DeviceObserved> of_device_;  // of the rows of the call
  std::vector<int32_t> fired_, active_;
  std::vector<float> factors_;
};

HybridFfn::HybridFfn(const PassContext& context, const PassWidths& widths, Budget& budget,
                     accel::DeviceFfns& device, std::unique_ptr<FfnExecutor> rest)
    : context_(context),
      device_(device),
      rest_(std::move(rest)),
      selector_(
          budget, widths.device_neurons, widths.most_beside_device, NeuronLists::kTokensOfQuery,
          [this](const SelectionQuery& query, const ActiveSets& whole) { Launch(query, whole); }),
      memory_(budget, "activations", HybridBytes(widths)),
      observer_(std::make_unique<WholeObserver>()) {
  auto* const floats = reinterpret_cast<float*>(memory_.data());
  auto* const numbers = reinterpret_cast<int32_t*>(floats + OutNumbers(widths));
  out_ = {floats, widths.tokens, widths.hidden, widths.hidden};
  heads_ = {numbers, HeadNumbers(widths)};
  counts_ = {numbers + HeadNumbers(widths), static_cast<size_t>(TokensOfLaunch(widths))};
}

HybridFfn::~HybridFfn() { device_.Abandon(); }

uint64_t HybridFfn::ChargedBytes(const PassWidths& widths) {
  return Buffer::ChargedBytes(HybridBytes(widths)) +
         SplitSelector::ChargedBytes(widths.most_beside_device, NeuronLists::kTokensOfQuery);
}

void HybridFfn::Begin(const FfnPass& pass) {
  pass_ = pass;
  selector_.Ask(*pass.selector);
  if (pass.observer != nullptr) observer_->Begin(pass.observer, pass.rows);
  if (!rest_) return;
  FfnPass of_rest = pass;
  of_rest.selector = &selector_;
  of_rest.observer = pass.observer == nullptr ? nullptr : observer_.get();
  rest_->Begin(of_rest);
}

void HybridFfn::End() noexcept {
  if (rest_) rest_->End();
}

void HybridFfn::BeginLayer(int64_t layer, std::span<int32_t> experts, bool reorder) {
  if (rest_) rest_->BeginLayer(layer, experts, reorder);
}

void HybridFfn::EndLayer() {
  if (rest_) rest_->EndLayer();
}

void HybridFfn::AfterOp(PassOp op) noexcept {
  if (rest_) rest_->AfterOp(op);
}

void HybridFfn::Run(const FfnCall& call) {
  call_ = call;
  x_ = context_.input.x();
  launched_ = 0;
  observer_->BeginCall(call, OnDevice());
  try {
    accel::ProcessorSpan ffn(device_.trace(), "FFN", call.layer, x_.rows);
    if (BesideDevice() > 0) {
      rest_->Run(call);
    } else {
      RunAlone(call);
    }
    if (launched_ != (OnDevice() > 0 ? x_.rows : 0)) {
      throw Error(ErrorCode::kInternal, "HybridFfn", "tokens that the device was not sent");
    }
    ffn.End();
    if (OnDevice() == 0) return;
    accel::ProcessorSpan wait(device_.trace(), "wait", call.layer, x_.rows);
    device_.Wait();
    wait.End();
  } catch (...) {
    device_.Abandon();
    throw;
  }
  accel::ProcessorSpan merge(device_.trace(), "merge", call.layer, x_.rows);
  Add(context_.compute, call.out, out_.Rows(0, x_.rows));
  merge.End();
  context_.seam.After(PassOp::kFfnDown);
}

int64_t HybridFfn::Ffn() const {
  const int64_t experts = context_.layer(call_.layer).ffn.num_experts;
  return call_.layer * std::max<int64_t>(experts, 1) + call_.expert;
}

int64_t HybridFfn::OnDevice() const { return device_.shape().neurons[static_cast<size_t>(Ffn())]; }

int64_t HybridFfn::BesideDevice() const {
  return context_.layer(call_.layer).ffn.intermediate_size - OnDevice();
}

void HybridFfn::RunAlone(const FfnCall& call) {
  FillZero(call.out);
  const bool is_watched = pass_.observer != nullptr;
  if (is_watched) {
    pass_.observer->OnFfnInput(call.layer, call.expert, call.tokens, pass_.residual, x_);
  }
  ActiveSets none;
  for (int64_t first = 0; first < x_.rows; first += NeuronLists::kTokensOfQuery) {
    const int64_t count = std::min(NeuronLists::kTokensOfQuery, x_.rows - first);
    const std::span<const int64_t> tokens =
        call.tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    selector_.Select({call.layer, call.expert, tokens, x_.Rows(first, count), pass_.residual},
                     none);
    context_.seam.After(PassOp::kFfnPredictor);
    for (size_t i = 0; is_watched && i < tokens.size(); ++i) {
      NeuronObservation nothing;
      nothing.layer = call.layer;
      nothing.expert = call.expert;
      nothing.token = tokens[i];
      nothing.skips_silent = pass_.selector->mode() != FfnMode::kDense &&
                             CanSkipNeurons(context_.layer(call.layer).ffn.activation);
      observer_->OnFfnNeurons(nothing);
    }
  }
  if (!context_.layer(call.layer).ffn.bias) return;
  const float* const biases = FloatsOf(context_.layer_weights(call.layer).ffn_down_bias);
  AddToRows(context_.compute, call.out, biases + call.expert * call.out.cols);
}

// Where all neurons are meant, whoever asks may stop asking: all tokens that are left are sent.
void HybridFfn::Launch(const SelectionQuery& query, const ActiveSets& whole) {
  if (query.is_guess || OnDevice() == 0) return;
  if (!whole.all()) {
    LaunchLists(whole.lists());
  } else if (launched_ < x_.rows) {
    LaunchAll(x_.rows - launched_);
  }
}

accel::DeviceFfnWork HybridFfn::WorkOf(int64_t first, int64_t count, bool skips) const {
  const FfnSpec& ffn = context_.layer(call_.layer).ffn;
  const SilentGates silent = SilentGatesOf(ffn.activation, ffn.threshold);
  return {.ffn = Ffn(),
          .activation = {ffn.activation, ffn.threshold, skips && CanSkipNeurons(ffn.activation),
                         silent.below, silent.from, silent.to},
          .x = x_.Rows(first, count),
          .lists = {},
          .counts = {},
          .out = out_.Rows(first, count),
          .gates = {},
          .factors = {}};
}

void HybridFfn::LaunchAll(int64_t count) {
  if (pass_.observer != nullptr) ObserveDevice({}, count);
  const bool skips = pass_.selector->mode() != FfnMode::kDense;
  for (const int64_t end = launched_ + count; launched_ < end;) {
    const int64_t some = std::min(device_.shape().max_tokens, end - launched_);
    device_.Launch(WorkOf(launched_, some, skips));
    launched_ += some;
  }
}

void HybridFfn::LaunchLists(std::span<const std::span<const int32_t>> lists) {
  if (pass_.observer != nullptr) ObserveDevice(lists, std::ssize(lists));
  const bool skips = pass_.selector->mode() != FfnMode::kDense;
  const int64_t neurons = OnDevice();
  const auto most = static_cast<size_t>(device_.shape().max_tokens);
  for (size_t begin = 0; begin < lists.size(); begin += most) {
    device_.Wait();  // the lists before these are used
    const size_t some = std::min(most, lists.size() - begin);
    for (size_t i = 0; i < some; ++i) {
      const std::span<const int32_t> list = lists[begin + i];
      const auto end = std::lower_bound(list.begin(), list.end(), neurons);
      std::copy(list.begin(), end, heads_.begin() + static_cast<ptrdiff_t>(i) * neurons);
      counts_[i] = static_cast<int32_t>(end - list.begin());
    }
    accel::DeviceFfnWork work = WorkOf(launched_, static_cast<int64_t>(some), skips);
    work.lists = heads_.first(some * static_cast<size_t>(neurons));
    work.counts = counts_.first(some);
    device_.Launch(work);
    launched_ += static_cast<int64_t>(some);
  }
}

void HybridFfn::ObserveDevice(std::span<const std::span<const int32_t>> lists, int64_t count) {
  const auto neurons = static_cast<size_t>(OnDevice());
  const FfnSpec& ffn = context_.layer(call_.layer).ffn;
  const bool can_skip = CanSkipNeurons(ffn.activation);
  const SilentGates silent =
      can_skip ? SilentGatesOf(ffn.activation, ffn.threshold) : kNoSilentGates;
  watched_gates_.resize(neurons);
  watched_factors_.resize(neurons);
  for (int64_t row = launched_; row < launched_ + count; ++row) {
    accel::DeviceFfnWork work = WorkOf(row, 1, true);
    work.gates = watched_gates_;
    work.factors = watched_factors_;
    device_.Launch(work);
    device_.Wait();
    DeviceObserved& observed = observer_->OfRow(row);
    observed = {};
    if (!lists.empty()) {
      const std::span<const int32_t> list = lists[static_cast<size_t>(row - launched_)];
      observed.listed.emplace(list.begin(), list.end());
    }
    for (size_t i = 0; i < neurons; ++i) {
      if (silent.Contains(watched_gates_[i])) continue;
      observed.fired.push_back(static_cast<int32_t>(i));
      if (can_skip && watched_factors_[i] == 0.0f) continue;
      observed.active.push_back(static_cast<int32_t>(i));
      observed.factors.push_back(watched_factors_[i]);
    }
  }
}

}  // namespace hearth
