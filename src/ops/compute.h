// Where operations run: the kernels of one instruction set and a team of threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/worker_team.h"
#include "kernels/kernel_table.h"

namespace hearth {

// One per engine. Operations on it are started by one thread at a time.
class Compute {
 public:
  // isa: a table's name, or "auto" for the best this processor has. Throws
  // Error(kInvalidArgument), naming those that run here, for any other; threads: 1..1024, and
  // caller_processor, as WorkerTeam takes them.
  Compute(std::string_view isa, int threads, std::optional<int> caller_processor = {});

  const kernels::KernelTable& kernels() const { return *kernels_; }  // for ops only
  const kernels::KvEncoders& kv_encoders() const { return kernels_->kv_encoders; }
  WorkerTeam& team() { return team_; }
  int threads() const { return team_.size(); }
  const char* isa() const { return kernels_->isa; }

 private:
  const kernels::KernelTable* kernels_;
  WorkerTeam team_;
};

// Names accepted by --isa on this machine, the scalar oracle first.
std::vector<std::string> UsableIsaNames();

// True where weights of this type are multiplied as they are stored.
bool RunsAsStored(DType dtype);

}  // namespace hearth
