// How long FFNs of single neurons take, computed and read, with the speeds of a measured machine:
// the part of the cost model (planner/cost/cost_model.h) that replays what tokens asked for.
#pragma once

#include "planner/cost/cost_model.h"

namespace hearth {

inline double Over(double amount, double per_second) {
  return per_second > 0 ? amount / per_second : 0;
}

// Of reads that take `alone` seconds beside nothing, where threads compute out of memory for `busy`
// seconds of them: for so long storage keeps only a share of its speed.
double SecondsBeside(double share, double alone, double busy);

// Of an FFN all of whose neurons are in memory and so many are asked for.
double SecondsOfFfnInMemory(const CostInputs& in, double listed);

// Of all FFNs of a replay.
struct FfnSeconds {
  double compute = 0;
  double read = 0;
  double both = 0;
  double bytes_read = 0;
};

// in.replay is there. Whole neurons are read ahead where that is faster, as engines find out
// (pipeline/lookahead.h). between: seconds from one FFN to the next; guess: in which threads that
// wait find out what to read.
FfnSeconds SecondsOfFfns(const CostInputs& in, double between, double guess);

}  // namespace hearth
