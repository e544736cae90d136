// What shapes allow: whether a value keeps to them, and whether alternatives exclude each other.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/grammar/json_schema_shape.h"

namespace hearth {

class SchemaReader;

// Belongs to a reader, which reads the schemas of members and items and counts the work.
class ShapeJudge {
 public:
  explicit ShapeJudge(SchemaReader& reader) : reader_(reader) {}

  // Whether the value keeps to all of them, as grammars take it: never where it does not.
  bool Accepts(const SchemaSet& set, const SchemaJson& value);
  bool Accepts(const SchemaShape& shape, const SchemaJson& value);

  // Whether no document keeps to shapes of two branches, as far as that is easy to say. `closed`:
  // members that a shape says nothing of are not written. Throws as SchemaReader::Shapes does.
  bool AreDisjoint(const std::vector<std::vector<SchemaShape>>& branches, bool closed);
  // While AreDisjoint looks for what is empty: what may be allowed counts as allowed.
  bool is_loose() const { return is_loose_; }

 private:
  using BranchShape = std::pair<const SchemaShape*, size_t>;

  bool AreApart(const std::vector<std::vector<SchemaShape>>& branches, bool closed);
  bool HaveTag(const std::vector<BranchShape>& objects);
  bool IsTag(const std::string& name, const std::vector<BranchShape>& objects);
  bool ExcludeEachOther(const SchemaShape& a, const SchemaShape& b, bool closed);
  bool IsEmpty(const SchemaShape& shape, int depth);
  bool IsEmpty(const SchemaSet& set, int depth);
  bool AcceptsString(const SchemaShape& shape, const std::string& text) const;
  bool AcceptsArray(const SchemaShape& shape, const SchemaJson& value);
  bool AcceptsObject(const SchemaShape& shape, const SchemaJson& value);

  SchemaReader& reader_;
  bool is_loose_ = false;
};

}  // namespace hearth
