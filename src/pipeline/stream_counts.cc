#include "pipeline/stream_counts.h"

namespace hearth {

StreamCounts& StreamCounts::operator+=(const StreamCounts& other) {
  neurons += other.neurons;
  pinned += other.pinned;
  hits += other.hits;
  misses += other.misses;
  reads += other.reads;
  reads_ahead += other.reads_ahead;
  used_ahead += other.used_ahead;
  rests_left += other.rests_left;
  clusters += other.clusters;
  bytes_read += other.bytes_read;
  idle_seconds += other.idle_seconds;
  wall_seconds += other.wall_seconds;
  return *this;
}

StreamCounts& StreamCounts::operator-=(const StreamCounts& other) {
  neurons -= other.neurons;
  pinned -= other.pinned;
  hits -= other.hits;
  misses -= other.misses;
  reads -= other.reads;
  reads_ahead -= other.reads_ahead;
  used_ahead -= other.used_ahead;
  rests_left -= other.rests_left;
  clusters -= other.clusters;
  bytes_read -= other.bytes_read;
  idle_seconds -= other.idle_seconds;
  wall_seconds -= other.wall_seconds;
  return *this;
}

}  // namespace hearth
