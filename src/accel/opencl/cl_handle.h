// An OpenCL object that releases itself. For the sources of opencl/ only.
#pragma once

#include <utility>

#include "accel/opencl/functions.h"

namespace hearth::accel {

template <class T>
class ClHandle {
 public:
  using Release = cl_int(CL_API_CALL*)(T);

  ClHandle() = default;
  ClHandle(T object, Release release) : object_(object), release_(release) {}
  ClHandle(ClHandle&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), release_(other.release_) {}
  ClHandle& operator=(ClHandle&& other) noexcept {
    std::swap(object_, other.object_);
    std::swap(release_, other.release_);
    return *this;
  }
  ClHandle(const ClHandle&) = delete;
  ClHandle& operator=(const ClHandle&) = delete;
  ~ClHandle() {
    if (object_ != nullptr) release_(object_);
  }

  T get() const { return object_; }

 private:
  T object_ = nullptr;
  Release release_ = nullptr;
};

}  // namespace hearth::accel
