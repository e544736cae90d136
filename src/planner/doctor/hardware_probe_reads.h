// Reads at random places, as many in flight as asked for: what the storage's probes have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/random_words.h"
#include "planner/doctor/hardware.h"
#include "planner/doctor/hardware_profiler.h"
#include "planner/doctor/scratch_file.h"
#include "storage/async/async_reader.h"

namespace hearth {

// The file that is read: a scratch file, or the one that the options name.
class ProbeFile {
 public:
  // Writes the scratch file (`written` hears which share of it is there), or opens the file. Throws
  // as MeasureHardware says.
  ProbeFile(const ProfilerOptions& options, const std::function<void(double)>& written);

  AsyncFile& file() const { return *file_; }
  const std::string& place() const { return place_; }  // the folder, or the file

 private:
  const std::string place_;
  std::optional<ScratchFile> scratch_;
  std::unique_ptr<AsyncFile> file_;
};

// A block at a random place of the range of `kind`, into its slot of the memory.
ReadRequest RandomRead(const AsyncFile& file, const IoSpeed& kind, std::span<std::byte> memory,
                       uint64_t slot, RandomWords& random);

// Keeps queue_depth blocks of a kind in flight. Whatever is still in flight when it is destroyed is
// waited for. One thread at a time.
class ReadsInFlight {
 public:
  // Begins with the first queue_depth reads. All but the kind must outlive the object.
  ReadsInFlight(AsyncFile& file, const IoSpeed& kind, std::span<std::byte> memory,
                RandomWords& random);

  // Takes in what has arrived, after waiting for one where `waits`, and gives the system as many
  // new reads together where `again`. Nothing new after a read that failed.
  void TakeIn(bool waits, bool again) noexcept;
  size_t in_flight() const { return queue_->in_flight(); }
  double num_taken_in() const { return num_taken_in_; }
  // Throws Error(kIo) where a read failed.
  void CheckNoneFailed() const;

 private:
  const AsyncFile& file_;
  const IoSpeed kind_;
  const std::span<std::byte> memory_;
  RandomWords& random_;
  const std::unique_ptr<ReadQueue> queue_;
  std::vector<ReadRequest> next_;
  double num_taken_in_ = 0;
  int error_ = 0;
};

// Reads ranges of a file one after another into a ring of buffers, as a model's layers are read.
// The destructor waits for the reads in flight. One thread at a time.
class RangesInOrder {
 public:
  // Begins to read into all buffers, which lie in `memory`. It must outlive the object.
  RangesInOrder(AsyncFile& file, std::span<std::byte> memory, uint64_t range_bytes, int buffers);

  // Waits for the oldest range. Throws Error(kIo) where a read failed.
  void Take();
  // Reads the next range into the oldest buffer, whose contents are no longer needed.
  void ReadNext();

 private:
  AsyncFile& file_;
  const std::span<std::byte> memory_;
  const uint64_t range_bytes_;
  const uint64_t num_ranges_;  // in the file
  uint64_t next_ = 0;
  size_t oldest_ = 0;  // buffer
  std::vector<char> has_come_;
  const std::unique_ptr<ReadQueue> queue_;
};

}  // namespace hearth
