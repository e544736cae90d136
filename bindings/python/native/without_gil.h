// Running C++ while other Python threads go on.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace hearth::python {

// Calls fn without the interpreter's lock. Not pybind11's gil_scoped_release: that takes the lock
// in a destructor, and a daemon thread that wants it while the interpreter ends is ended right
// there, which no destructor survives.
template <typename Fn>
auto WithoutGil(Fn&& fn) {
  using Result = std::invoke_result_t<Fn>;
  std::exception_ptr thrown;
  std::optional<std::conditional_t<std::is_void_v<Result>, bool, Result>> result;
  PyThreadState* const thread = PyEval_SaveThread();
  try {
    if constexpr (std::is_void_v<Result>) {
      std::forward<Fn>(fn)();
    } else {
      result.emplace(std::forward<Fn>(fn)());
    }
  } catch (...) {
    thrown = std::current_exception();
  }
  PyEval_RestoreThread(thread);
  if (thrown) std::rethrow_exception(thrown);
  if constexpr (!std::is_void_v<Result>) return std::move(*result);
}

}  // namespace hearth::python
