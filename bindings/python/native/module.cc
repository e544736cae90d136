// The native part of the Python package: hearth.hpp for Python. What users see is in ../hearth.
#include <pybind11/pybind11.h>

#include <exception>
#include <hearth/hearth.hpp>

#include "model.h"
#include "stream.h"
#include "text.h"

namespace {

namespace py = pybind11;

void RaiseAsPython(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const hearth::api::Error& error) {
    const py::module_ errors = py::module_::import("hearth._errors");
    const py::object code = errors.attr("ErrorCode")(hearth::api::ErrorCodeName(error.code()));
    const py::object raised = errors.attr("Error")(hearth::python::ToStr(error.what()), code,
                                                   hearth::python::ToStr(error.field()));
    PyErr_SetObject(errors.attr("Error").ptr(), raised.ptr());
  }
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  py::register_local_exception_translator(RaiseAsPython);
  hearth::python::BindStream(module);
  hearth::python::BindModel(module);
}
