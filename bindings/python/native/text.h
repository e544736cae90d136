// Texts for Python, which refuses what is no UTF-8.
#pragma once

#include <pybind11/pybind11.h>

#include <string_view>

namespace hearth::python {

// What is no UTF-8 becomes U+FFFD.
inline pybind11::str ToStr(std::string_view text) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (decoded == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(decoded);
}

// As os.fsdecode: os.fsencode gives the same bytes again.
inline pybind11::str PathToStr(std::string_view path) {
  PyObject* decoded =
      PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size()));
  if (decoded == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(decoded);
}

}  // namespace hearth::python
