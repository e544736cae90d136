// The variables of a template while it is rendered: frames, one inside the other.
#pragma once

#include "text/jinja/syntax/ast.h"
#include "text/jinja/values/runtime.h"
#include "text/jinja/values/value.h"

namespace hearth::jinja {

class Interpreter;

// The variables of a scope while it is active. Inner frames and macros keep pointers to it.
struct Frame : HeapObject {
  Frame(const Scope& its_scope, Frame* its_outer)
      : scope(its_scope), outer(its_outer), slots(its_scope.slots.size()) {}
  // The slot itself, or that of a frame around this one.
  Value& Slot(SlotRef slot) {
    Frame* owner = this;
    for (int i = 0; i < slot.hops; ++i) owner = owner->outer;
    return owner->slots[static_cast<size_t>(slot.index)];
  }
  const Scope& scope;
  Frame* const outer;
  Values slots;  // missing where not set
};

class Variables {
 public:
  // `interpreter` renders the blocks of the variable `self`. `context`: a dict with keys of type
  // str. All outlive this.
  Variables(Runtime& runtime, Interpreter& interpreter, const DictObject& context)
      : runtime_(runtime), interpreter_(interpreter), context_(context) {}

  // A frame whose slots are all missing; the heap owns it. `outer`: null where none is around it.
  Frame& NewFrame(const Scope& scope, Frame* outer);
  // Gives every slot its first value; parameters are left alone.
  void Enter(Frame& frame);
  // NewFrame, and Enter.
  Frame& Open(const Scope& scope, Frame* outer);
  // The frame of the template itself, opened before all others.
  Frame& OpenRoot(const Scope& scope);
  // Assigns to a name, a tuple of names, or an attribute of a namespace. Throws Failure where the
  // value does not fit.
  void Assign(const Expr& target, Frame& frame, const Value& value);

  // While a block is rendered: names in it find what the template has set so far.
  void EnterBlock() { ++blocks_around_; }
  void LeaveBlock() { --blocks_around_; }

 private:
  Value LookUp(const Text& name);

  Runtime& runtime_;
  Interpreter& interpreter_;
  const DictObject& context_;
  Frame* root_ = nullptr;
  int blocks_around_ = 0;
};

}  // namespace hearth::jinja
