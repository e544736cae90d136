// What a template is rendered with: messages, tools and whatever else it asks for.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace hearth::jinja {

class Heap;
struct DictObject;

// A dict of variables. All texts in it are user text, not trusted, but for those that say
// otherwise. Constant contexts may be read by several threads at once.
class Context {
 public:
  Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  ~Context();

  // The members of a JSON object, in its order. `where` begins messages. Throws
  // Error(kInvalidArgument) for text that is not a JSON object, or nested deeper than 200 levels.
  static Context FromJson(std::string_view json, std::string_view where);

  // Each replaces what was there.
  void SetText(std::string_view name, std::string_view text);
  // A text that the program vouches for, like the BOS token of the model.
  void SetTrustedText(std::string_view name, std::string_view text);
  void SetBool(std::string_view name, bool value);
  // Any JSON value, as in FromJson.
  void SetJson(std::string_view name, std::string_view json);
  // The text of that name, if it is one, becomes trusted.
  void Trust(std::string_view name);

  bool Has(std::string_view name) const;
  // Is there, and neither none nor false nor empty.
  bool IsTrue(std::string_view name) const;
  const DictObject& dict() const { return *dict_; }

 private:
  void Set(std::string_view name, std::string_view text, bool trusted);

  std::unique_ptr<Heap> heap_;
  DictObject* dict_;  // the heap's
};

}  // namespace hearth::jinja
