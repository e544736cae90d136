// What the functions of the C interface share: handles, and how exceptions become statuses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "hearth/hearth.h"
#include "hearth/hearth.hpp"

struct hearth_model {
  hearth::api::Model model;
};

struct hearth_session {
  hearth::api::Session session;
};

namespace hearth::api {

hearth_status StatusOf(ErrorCode code);
// Writes the status and the message, cut between characters, where there is a place for them.
hearth_status Report(hearth_error* error, hearth_status status, const char* message);

// Runs fn, which returns a status, and turns what it throws into one.
template <typename Fn>
hearth_status Guarded(hearth_error* error, Fn&& fn) noexcept {
  try {
    const hearth_status status = std::forward<Fn>(fn)();
    return Report(error, status, status == HEARTH_TOO_SMALL ? "the buffer is too small" : "");
  } catch (const Error& thrown) {
    return Report(error, StatusOf(thrown.code()), thrown.what());
  } catch (const std::bad_alloc&) {
    return Report(error, HEARTH_OUT_OF_BUDGET, "the system has no more memory to give");
  } catch (const std::exception& thrown) {
    return Report(error, HEARTH_INTERNAL, thrown.what());
  } catch (...) {
    return Report(error, HEARTH_INTERNAL, "an unknown error");
  }
}

inline void Require(bool condition, const char* what) {
  if (!condition) throw Error(ErrorCode::kInvalidArgument, what);
}

// For functions that cannot say what went wrong.
template <typename Fn>
void Quietly(Fn&& fn) noexcept {
  Guarded(nullptr, [&] {
    std::forward<Fn>(fn)();
    return HEARTH_OK;
  });
}

// An array of the caller's, where it can be one.
template <typename T>
std::span<const T> Array(const T* first, size_t count, const char* what) {
  Require(first != nullptr || count == 0, what);
  Require(count <= PTRDIFF_MAX / sizeof(T), "a count is more than memory holds");
  return {first, count};
}

template <typename T>
void Clear(T* place) {
  if (place != nullptr) *place = {};
}

// Copies what there is room for, and says how much there is.
template <typename T, typename Range>
hearth_status CopyOut(const Range& from, T* to, size_t capacity, size_t* count) {
  Require(count != nullptr && (to != nullptr || capacity == 0), "a result needs a place");
  *count = from.size();
  std::copy_n(from.begin(), std::min(capacity, from.size()), to);
  return from.size() > capacity ? HEARTH_TOO_SMALL : HEARTH_OK;
}

// The members of a struct that begins with struct_size; those that an older caller's has not are 0.
// Throws Error(kInvalidArgument) where the size is none, Error(kUnsupported) where a newer caller's
// has members that are set and nothing here knows.
template <typename T>
T Grown(const T& from) {
  constexpr size_t kMostBytes = 4096;
  size_t bytes = 0;
  std::memcpy(&bytes, &from, sizeof(bytes));
  Require(bytes >= sizeof(bytes) && bytes <= kMostBytes,
          "struct_size is not the size of the struct");
  T all = {};
  std::memcpy(&all, &from, std::min(bytes, sizeof(T)));
  const auto* raw = reinterpret_cast<const unsigned char*>(&from);
  for (size_t i = sizeof(T); i < bytes; ++i) {
    if (raw[i] == 0) continue;
    throw Error(ErrorCode::kUnsupported,
                "the program uses what this library does not have: use a newer library");
  }
  return all;
}

// Writes what there is room for in the caller's struct, which begins with its own size. Throws
// Error(kInvalidArgument) where that is none.
template <typename T>
void CopyGrown(T from, T* to) {
  from.struct_size = to->struct_size;
  Require(to->struct_size >= sizeof(size_t), "struct_size is not the size of the struct");
  std::memcpy(to, &from, std::min(to->struct_size, sizeof(T)));
}

inline const char* TextOr(const char* text, const char* otherwise) {
  return text != nullptr ? text : otherwise;
}

std::vector<AdapterScale> ToScales(const hearth_adapter_scale* scales, size_t count);
LoadOptions ToOptions(const hearth_options& from);
// NULL stands for what hearth_request_init sets.
GenerateRequest ToRequest(const hearth_request* from);
hearth_result ToResult(const Outcome& outcome);

}  // namespace hearth::api
