// P_miss(m) of P2 §5.2: what a streamed model would have to read, token by token, with its
// memory for neurons shared out in some way, by replaying recorded accesses.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/cache_policy.h"
#include "pipeline/extents/extent_map.h"
#include "plan/extent_plan.h"
#include "plan/stream_plan.h"
#include "sparsity/access_sequence.h"

namespace hearth {

// An FFN of one token: how many neurons it asked for, and how many of them were not in memory. Of a
// mixture that is not packed, a layer of one token and extents.
struct FfnAccess {
  int32_t listed = 0;
  int32_t pinned = 0;  // of them; the others are looked up
  int32_t misses = 0;
  // Of the misses, those right after another in the file, and those with one neuron between: what
  // a queue may read together (storage/async/async_reader.h).
  int32_t next_to = 0;
  int32_t one_between = 0;
  // Read before its turn by an engine that looks ahead: on a guess, what is not in memory then; and
  // how many of those are among the misses.
  int32_t ahead = 0;
  int32_t used_ahead = 0;
};

struct MissReplay {
  std::vector<FfnAccess> ffns;  // in the order of the sequence, without the first tokens
  int64_t tokens = 0;
  double weight = 1;  // each stands for so many: where only some layers were replayed

  double listed_per_token() const;
  double misses_per_token() const;
  double miss_rate() const;  // 0 where nothing was listed
};

// What of a sequence is replayed and counted.
struct ReplaySample {
  int64_t skipped_tokens = 0;  // the first ones, which fill the cache and are not counted
  int64_t layer_step = 1;      // every layer_step-th layer is replayed
};

// Replays a sequence of single tokens through what `plan` holds: the first neurons of every FFN
// pinned, the cache warm with the next ones, as an engine starts (pipeline/streamed_ffns.h). At
// least one token is counted. A layer is replayed with its share of the cache: layers compete for
// slots alike. `guesses`: of the same passes what would be expected of each FFN (AccessRecord);
// null where nobody looks ahead. Throws Error(kInvalidArgument) for sequences of another shape.
MissReplay ReplayMisses(const AccessSequence& sequence, const StreamShape& shape,
                        const StreamPlan& plan, CachePolicyKind policy, const ReplaySample& sample,
                        const AccessSequence* guesses = nullptr);

// The same of a mixture that is not packed: a sequence of experts, held and read in extents as
// pipeline/extents/streamed_matrices.h does.
MissReplay ReplayExperts(const AccessSequence& sequence, const ExtentMap& map,
                         const ExtentPlan& plan, CachePolicyKind policy, int64_t skipped);

}  // namespace hearth
