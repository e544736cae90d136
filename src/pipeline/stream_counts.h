// What streamed FFNs found, read and waited for.
#pragma once

#include <cstdint>

namespace hearth {

// Of a decode pipeline or of ranges, so far.
struct StreamCounts {
  int64_t neurons = 0;      // listed; where gates are held, firing; of ranges, all
  int64_t pinned = 0;       // of them
  int64_t hits = 0;         // found in the cache
  int64_t misses = 0;       // read from storage
  int64_t reads = 0;        // for them, or ahead; neighbours may have been read together
  int64_t reads_ahead = 0;  // of the reads, those before anybody had asked
  int64_t used_ahead = 0;   // of those, for neurons that were then listed
  int64_t rests_left = 0;   // of the misses, those whose up and down were not: the gate is silent
  int64_t clusters = 0;     // that threads took of ready neurons
  uint64_t bytes_read = 0;  // with what lies between such neighbours
  double idle_seconds = 0;  // threads without work while reads were under way, all together
  double wall_seconds = 0;  // of all calls

  StreamCounts& operator+=(const StreamCounts& other);
  StreamCounts& operator-=(const StreamCounts& other);
};

}  // namespace hearth
