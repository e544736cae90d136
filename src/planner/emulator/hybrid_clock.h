// The time that a pass of tokens takes on an emulated machine, both units working at once: virtual
// time, in seconds from the pass's begin.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/emulator/emulated_model.h"
#include "storage/device_profile.h"

namespace hearth {

// Neurons of one FFN that a pass lists, by where they lie: each once, and summed over its tokens.
struct EmulatedLists {
  double device = 0, host = 0, flash = 0;
  double device_all = 0, host_all = 0;  // over all tokens; host_all has those of flash
};

// What a pass did, in bytes of weights.
struct EmulatedWork {
  double device_bytes = 0;  // multiplied there
  double host_bytes = 0;
  double device_ffn_bytes = 0;  // of them, of FFNs
  double host_ffn_bytes = 0;
  double flash_bytes = 0;  // read
};

class HybridClock {
 public:
  // All must outlive it.
  HybridClock(const EmulatedMachine& machine, const EmulatedModel& model,
              const EmulatedPlacement& placement);

  // Returns the seconds of a pass of `tokens` tokens after `context` others. lists: by layer; not
  // looked at where the system lists no neurons. Where `flash` is null, reads take the time of its
  // fastest rate, and nothing keeps it busy after the pass.
  double PassSeconds(int64_t tokens, int64_t context, const std::vector<EmulatedLists>& lists,
                     DeviceModel* flash, EmulatedWork* work);

 private:
  enum class Unit : uint8_t { kHost, kDevice };

  double Transfer(double bytes) const;
  // Weights of `bytes` times vectors, `macs` multiply-adds in all.
  double OnDevice(double bytes, double macs, int launches) const;
  double OnHost(double bytes, double macs) const;
  // The same of weights that the host has: where a prompt makes it worth it, they are uploaded and
  // multiplied on the device (P1 §8.2).
  double HostWeights(double bytes, double macs) const;
  double MoveTo(Unit unit);
  void RunDense(int64_t layer);
  void RunFfnWhole(int64_t layer);
  void RunFfnListed(const EmulatedLists& lists, bool is_there);
  void RunOutput();
  double ReadSeconds(double neurons);
  void Count(Unit unit, double bytes, bool is_ffn);

  const EmulatedMachine& machine_;
  const EmulatedModel& model_;
  const EmulatedPlacement& placement_;
  // Of the pass.
  double tokens_ = 1;
  double context_ = 0;
  double now_ = 0;  // when the hidden states are there
  Unit where_ = Unit::kHost;
  DeviceModel* flash_ = nullptr;
  uint64_t flash_offset_ = 0;
  EmulatedWork* work_ = nullptr;
};

}  // namespace hearth
