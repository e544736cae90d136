// Brute force beside the solver of tile sizes (kernels/solver/tile_solver.h): hearth_micro --tiles.
#pragma once

#include <string>
#include <vector>

#include "bench/micro/micro.h"

namespace hearth::micro {

// Times every geometry that the tables have, for decode and prompts of several lengths, on
// `threads` threads at once, all geometries in turn and round after round. Prints the solver's
// choice beside the fastest; writes all times to `json_path` where that is not empty. Throws
// Error(kIo) where it cannot be written.
void RunTileTable(const std::vector<const kernels::KernelTable*>& tables, const Memory& memory,
                  int threads, const std::string& json_path);

}  // namespace hearth::micro
