// What a connection has to write: bytes that wait, and bytes that are on their way.
#pragma once

#include <boost/asio/buffer.hpp>
#include <string>
#include <string_view>

namespace hearth::serve {

// Used on one thread.
class Outbox {
 public:
  void Add(std::string_view text) { waiting_ += text; }
  bool has_waiting() const { return !waiting_.empty(); }
  size_t waiting_bytes() const { return waiting_.size(); }
  bool is_writing() const { return is_writing_; }

  // Puts what waits on its way, all of it written by rest(); false where nothing waits or something
  // is on its way already.
  bool Begin() {
    if (is_writing_ || waiting_.empty()) return false;
    is_writing_ = true;
    leaving_.clear();
    leaving_.swap(waiting_);
    written_ = 0;
    return true;
  }
  // The part of what is on its way that has not been written yet. Valid until Begin or DropWritten.
  boost::asio::const_buffer rest() const { return boost::asio::buffer(leaving_) + written_; }
  void CountWritten(size_t bytes) { written_ += bytes; }
  bool has_rest() const { return written_ < leaving_.size(); }
  // Nothing is being written any more.
  void End() { is_writing_ = false; }

  void DropWaiting() { waiting_ = {}; }
  // Frees what was written. Not while something is being written.
  void DropWritten() { leaving_ = {}; }

 private:
  std::string waiting_, leaving_;
  size_t written_ = 0;  // of leaving_
  bool is_writing_ = false;
};

}  // namespace hearth::serve
