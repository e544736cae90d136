// Work on all threads that may fail, and whose results may have to be taken in order.
#pragma once

#include <cstddef>
#include <functional>

#include "base/worker_team.h"

namespace hearth {

// One piece of the work, on thread `worker` of the team; worker 0 is the calling thread. May throw:
// the first error stops the others before their next piece and is thrown to the caller.
using PieceFn = std::function<void(int worker, size_t piece)>;

// Calls work(worker, piece) for every piece in [0, pieces).
void RunPieces(WorkerTeam& team, size_t pieces, const PieceFn& work);

// Calls make for every piece on all threads, and take for piece 0, 1, 2, ... in that order, one at
// a time, on the thread that made it. Each thread holds one made piece at most: while one writes,
// the others make theirs, so that the disk waits only where making is what takes the time.
void RunPiecesInOrder(WorkerTeam& team, size_t pieces, const PieceFn& make, const PieceFn& take);

}  // namespace hearth
