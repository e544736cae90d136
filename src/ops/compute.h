// Where operations run: the kernels of one instruction set and a team of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/worker_team.h"
#include "kernels/kernel_table.h"
#include "kernels/solver/tile_solver.h"

namespace hearth {

// One per engine. Operations on it are started by one thread at a time.
class Compute {
 public:
  // isa: a table's name, or "auto" for the best this processor has. Throws
  // Error(kInvalidArgument), naming those that run here, for any other; threads: 1..1024, and
  // caller_processor, as WorkerTeam takes them.
  Compute(std::string_view isa, int threads, std::optional<int> caller_processor = {});

  const kernels::KernelTable& kernels() const { return *kernels_; }  // for ops only
  // How products of weight tiles are cut for so many tokens: as MatMulInput lays its rows out.
  const TileGeometry& TilesFor(int64_t tokens) const { return tiles_.For(tokens); }
  // Uses what was measured (ops/tiles/measured_tiles.h) in place of the solver's choice. Before the
  // first product. Throws Error(kInvalidArgument) for geometries that these kernels do not have.
  void UseTiles(std::span<const TilesForTokens> measured);
  const kernels::KvEncoders& kv_encoders() const { return kernels_->kv_encoders; }
  WorkerTeam& team() { return team_; }
  int threads() const { return team_.size(); }
  const char* isa() const { return kernels_->isa; }

 private:
  const kernels::KernelTable* kernels_;
  kernels::TileChoice tiles_;
  WorkerTeam team_;
};

// Names accepted by --isa on this machine, the scalar oracle first.
std::vector<std::string> UsableIsaNames();

// True where weights of this type are multiplied as they are stored.
bool RunsAsStored(DType dtype);

}  // namespace hearth
