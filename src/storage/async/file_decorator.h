// An AsyncFile that wraps another: what decorators share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "storage/async/async_reader.h"

namespace hearth {

// Owns the file and says what it says; a decorator adds OpenQueue.
class FileDecorator : public AsyncFile {
 public:
  explicit FileDecorator(std::unique_ptr<AsyncFile> inner) : inner_(std::move(inner)) {}

  const std::string& name() const override { return inner_->name(); }
  uint64_t size_bytes() const override { return inner_->size_bytes(); }
  const char* backend() const override { return inner_->backend(); }
  const std::string& note() const override { return inner_->note(); }
  bool direct() const override { return inner_->direct(); }
  uint32_t alignment_bytes() const override { return inner_->alignment_bytes(); }
  uint32_t memory_alignment_bytes() const override { return inner_->memory_alignment_bytes(); }
  void CheckUnchanged() const override { inner_->CheckUnchanged(); }

 protected:
  AsyncFile& inner() noexcept { return *inner_; }

 private:
  const std::unique_ptr<AsyncFile> inner_;
};

}  // namespace hearth
