// Replays of one record (planner/cost/miss_replay.h), each made once: settings that hold the same
// neurons share one.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "engine/load/engine_plan.h"
#include "pipeline/streamed_ffns.h"
#include "planner/cost/access_record.h"
#include "planner/cost/miss_replay.h"

namespace hearth {

class Replays {
 public:
  // `accesses` may be null: then nothing is asked for. Both outlive this.
  Replays(const AccessRecord* accesses, const StreamOptions& pipeline)
      : accesses_(accesses), pipeline_(pipeline) {}

  // Of an engine that is planned, with few of the layers and a cache of about its size: enough to
  // compare settings. Stays where it is.
  const MissReplay* ToCompare(const EnginePlan& plan);
  // The same of each of them, at once.
  void MakeToCompare(const std::vector<EnginePlan>& plans);
  // With more layers and the cache as it will be: what users are told.
  const MissReplay* ToTell(const EnginePlan& plan);

 private:
  // What tells replays apart: what is in memory, and how many layers were replayed.
  struct Key {
    int64_t pinned = 0;
    int64_t slots = 0;
    bool holds_gates = false;
    int64_t step = 1;
    int64_t grain = 1;  // slots are told apart in steps of so many
    auto operator<=>(const Key&) const = default;
  };

  static Key KeyOf(const EnginePlan& plan, int64_t step, int64_t slot_steps);
  const MissReplay* Of(const EnginePlan& plan, int64_t look_ups, int64_t slot_steps);
  int64_t LayerStep(int64_t look_ups) const;
  MissReplay Make(const EnginePlan& plan, int64_t step) const;

  const AccessRecord* const accesses_;
  const StreamOptions& pipeline_;
  std::map<Key, MissReplay> made_;
};

}  // namespace hearth
