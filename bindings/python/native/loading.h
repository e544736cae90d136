// Loading a model while Python is told how far it is.
#pragma once

#include <pybind11/pybind11.h>

#include <hearth/hearth.hpp>
#include <memory>
#include <string>

namespace hearth::python {

// With the interpreter's lock, which is given away meanwhile. progress: a function of bytes that
// are read and all of them, or None; called on this thread, with the newest. An exception of it, or
// of a signal handler (Ctrl-C), ends the loading and is thrown.
std::shared_ptr<api::Model> LoadModel(const std::string& path, api::LoadOptions options,
                                      const pybind11::object& progress);

}  // namespace hearth::python
