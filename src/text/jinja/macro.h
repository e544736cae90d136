// {% macro %} and the caller of {% call %} as values.
#pragma once

#include <string>
#include <utility>

#include "text/jinja/interpreter.h"

namespace hearth::jinja {

class MacroObject : public CustomObject {
 public:
  // `frame`: where it was defined. A caller has no name.
  MacroObject(Interpreter& interpreter, const MacroBody& macro, Frame& frame, std::string name)
      : interpreter_(interpreter), macro_(macro), frame_(frame), name_(std::move(name)) {}

  std::string TypeName() const override { return "Macro"; }
  bool IsCallable() const override { return true; }
  Value Call(Runtime& runtime, const Arguments& arguments) override;
  std::optional<Value> Attribute(Runtime& runtime, const Text& name) override;
  Text Repr(Runtime& runtime) override;

 private:
  Interpreter& interpreter_;
  const MacroBody& macro_;
  Frame& frame_;
  const std::string name_;
};

}  // namespace hearth::jinja
