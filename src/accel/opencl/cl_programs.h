// The programs of one device. Each is built, or taken from the cache of binaries, when one of its
// kernels is first wanted.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "accel/device.h"
#include "accel/opencl/cl_handle.h"
#include "accel/opencl/program_cache.h"

namespace hearth::accel {

// Thread-safe. `cl` and `info` must outlive it.
class ClPrograms {
 public:
  ClPrograms(const ClFunctions& cl, cl_context context, cl_device_id device, const DeviceInfo& info,
             std::string cache_folder)
      : cl_(cl), context_(context), device_(device), info_(info), cache_(std::move(cache_folder)) {}

  // Throws Error(kUnsupported) with the first line of the compiler's log.
  cl_program Get(const ProgramName& name);

 private:
  using Program = ClHandle<cl_program>;

  Program Make(const ProgramName& name) const;
  Program FromBinary(const std::string& key, const std::string& options) const;
  Program Build(const ProgramName& name, const std::string& options) const;
  void Keep(const std::string& key, cl_program program) const;
  std::string FirstLogLine(cl_program program) const;

  const ClFunctions& cl_;
  cl_context context_;
  cl_device_id device_;
  const DeviceInfo& info_;
  const ProgramCache cache_;
  std::mutex mutex_;
  std::map<std::string, Program> programs_;  // guarded by mutex_
};

}  // namespace hearth::accel
