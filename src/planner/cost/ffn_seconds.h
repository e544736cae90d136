// How long FFNs of single neurons take, computed and read, with the speeds of a measured machine:
// the part of the cost model (planner/cost/cost_model.h) that replays what tokens asked for.
#pragma once

#include "planner/cost/cost_model.h"

namespace hearth {

// To compute one FFN that is held in memory as a whole, when so many of its neurons are asked for.
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
