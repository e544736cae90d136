// Calls whose arguments do not stand as one JSON object: what is between the marks that calls begin
// and end with, byte by byte.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "text/tools/tool_function.h"
#include "text/tools/tool_parameters.h"
#include "text/tools/tool_syntax.h"

namespace hearth {

// Of every function its parameters.
using CallableFunctions = std::map<std::string, ToolParameters, std::less<>>;

// Parameters are read where the syntax needs them.
std::shared_ptr<const CallableFunctions> MakeCallable(const std::vector<ToolFunction>& functions,
                                                      const ToolSyntax& syntax);

class CallBody {
 public:
  enum class Step {
    kGoesOn,
    kName,      // name() is that of a call now, TakeArguments() begins
    kCallDone,  // TakeArguments() is the last of it; another one may come
    kBodyDone,  // the same, and the syntax's `end` is to come
    kEndDone,   // the same, and `end` was in it
    kNoCall,    // this is none
  };

  virtual ~CallBody() = default;
  // The mark before calls was read.
  virtual void Open() = 0;
  virtual Step Push(char byte) = 0;
  const std::string& name() const { return name_; }
  // What is new of the call's arguments: JSON, a whole member at a time.
  std::string TakeArguments();

 protected:
  Step BeginCall(std::string name);
  // Adds an argument; ignored where one of that name is already there.
  void AddArgument(const std::string& key, const std::string& json);
  void EndCall();

 private:
  std::string name_;
  std::string new_;                // of the arguments
  std::vector<std::string> keys_;  // of the call
};

// For the forms kTagged and kPython. Both must outlive it.
std::unique_ptr<CallBody> MakeCallBody(const ToolSyntax& syntax,
                                       const CallableFunctions& functions);

}  // namespace hearth
