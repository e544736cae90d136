#include "planner/emulator/hybrid_replay.h"

#include <algorithm>

#include "base/error.h"
#include "base/random_words.h"
#include "planner/simulator/simulator_accesses.h"
#include "planner/simulator/simulator_model.h"
#include "prepare/synth/planted_options.h"

namespace hearth {
namespace {

// Where each neuron lies. A random placement is a fixed draw for every neuron.
class EmulatedPlaces {
 public:
  enum class Place : uint8_t { kDevice, kHost, kFlash };

  EmulatedPlaces(const EmulatedModel& model, const EmulatedPlacement& placed)
      : neurons_(model.neurons), placed_(placed) {}

  Place Of(int64_t layer, int64_t neuron) const {
    const auto l = static_cast<size_t>(layer);
    int64_t at = neuron;
    if (placed_.system == EmulatedSystem::kRandom) {
      RandomWords word(StreamOf(static_cast<uint64_t>(layer), static_cast<uint64_t>(neuron), 0));
      at = static_cast<int64_t>(word.NextUnit() * static_cast<double>(neurons_));
    }
    if (at < placed_.device_neurons[l]) return Place::kDevice;
    return at < placed_.device_neurons[l] + placed_.host_neurons[l] ? Place::kHost : Place::kFlash;
  }

 private:
  const int64_t neurons_;
  const EmulatedPlacement& placed_;
};

// Lists of some tokens, put together by layer.
class ListedTokens {
 public:
  ListedTokens(const EmulatedModel& model, const EmulatedPlaces& places)
      : model_(model), places_(places), seen_(static_cast<size_t>(model.num_layers)) {}

  void Draw(SimAccesses& accesses, int64_t tokens, std::vector<EmulatedLists>& lists) {
    lists.assign(static_cast<size_t>(model_.num_layers), {});
    for (std::vector<bool>& layer : seen_) layer.assign(static_cast<size_t>(model_.neurons), false);
    for (int64_t t = 0; t < tokens; ++t) {
      accesses.Next(drawn_);
      for (const SimList& list : drawn_) Add(list, lists[static_cast<size_t>(list.layer)]);
    }
  }

 private:
  void Add(const SimList& list, EmulatedLists& to) {
    std::vector<bool>& seen = seen_[static_cast<size_t>(list.layer)];
    for (const int32_t neuron : list.neurons) {
      const bool is_new = !seen[static_cast<size_t>(neuron)];
      seen[static_cast<size_t>(neuron)] = true;
      switch (places_.Of(list.layer, neuron)) {
        case EmulatedPlaces::Place::kDevice:
          ++to.device_all;
          if (is_new) ++to.device;
          break;
        case EmulatedPlaces::Place::kHost:
          ++to.host_all;
          if (is_new) ++to.host;
          break;
        case EmulatedPlaces::Place::kFlash:
          ++to.host_all;
          if (is_new) ++to.flash;
          break;
      }
    }
  }

  const EmulatedModel& model_;
  const EmulatedPlaces& places_;
  std::vector<std::vector<bool>> seen_;
  std::vector<SimList> drawn_;
};

void Divide(double by, EmulatedWork& work) {
  for (double* bytes : {&work.device_bytes, &work.host_bytes, &work.device_ffn_bytes,
                        &work.host_ffn_bytes, &work.flash_bytes}) {
    *bytes /= by;
  }
}

}  // namespace

Emulation Emulate(const EmulatedMachine& machine, const EmulatedModel& model,
                  const ModelShape& shape, const EmulationOptions& options) {
  if (options.prompt_tokens < 1 || options.decode_tokens < 1) {
    throw Error(ErrorCode::kInvalidArgument, "emulation", "at least one token of each kind");
  }
  SyntheticAccesses accesses(SimModelOf(shape, SimSystem::kHearth),
                             {.active = options.active, .skew = options.skew, .seed = options.seed},
                             nullptr);
  Emulation emulation;
  emulation.placement = PlaceEmulated(machine, model, options.budgets, options.system,
                                      PowerLawRates(model.neurons, options.active, options.skew));
  const EmulatedPlaces places(model, emulation.placement);
  ListedTokens listed(model, places);
  HybridClock clock(machine, model, emulation.placement);
  std::vector<EmulatedLists> lists;
  const bool lists_neurons = ListsNeurons(options.system);
  if (lists_neurons) listed.Draw(accesses, options.prompt_tokens, lists);
  emulation.prompt_seconds = clock.PassSeconds(options.prompt_tokens, 0, lists, nullptr, nullptr);
  emulation.uploads = UploadedPrompt(machine, model, emulation.placement, options.prompt_tokens);
  for (int64_t t = 0; t < options.decode_tokens; ++t) {
    if (lists_neurons) listed.Draw(accesses, 1, lists);
    DeviceModel flash(machine.flash);  // which is idle when a token begins
    emulation.token_seconds +=
        clock.PassSeconds(1, options.prompt_tokens + t, lists, &flash, &emulation.work);
  }
  const auto tokens = static_cast<double>(options.decode_tokens);
  emulation.token_seconds /= tokens;
  Divide(tokens, emulation.work);
  return emulation;
}

}  // namespace hearth
