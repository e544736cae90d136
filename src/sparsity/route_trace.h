// Expert traces as text (docs/formats/route_trace.md). Internal to ReadAccessSequence.
#pragma once

#include "sparsity/access_sequence.h"
#include "storage/block_reader.h"

namespace hearth {

// Rows in the file's order; the rows of one turn, phase, step and layer are a batch. Throws as
// ReadAccessSequence does, and Error(kCorrupt) where it is no such file.
AccessSequence ReadRouteTrace(const BlockReader& file, const ReadProgressFn& progress);

}  // namespace hearth
