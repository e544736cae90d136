// The picture of a replay: what each policy hits, by capacity.
#pragma once

#include <string>

#include "sparsity/access_sequence.h"
#include "sparsity/cache_replay.h"

namespace hearth {

// An SVG document: hit rates (up) over the share of all keys that the cache holds (right), a line
// per policy and Belady's bound above them. A single capacity is drawn as marks.
std::string PlotReplay(const AccessSequence& sequence, const ReplayResult& result);

}  // namespace hearth
