// Schemas as lists of shapes: what stands in "$ref", "allOf", "anyOf", "oneOf" and their like, and
// all that stands beside them, is put together.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "text/grammar/json_schema_shape.h"
#include "text/grammar/json_shape_judge.h"

namespace hearth {

// One per document: it counts its work, so that a small schema cannot become a large one.
class SchemaReader {
 public:
  // Of a document, in which references are looked up. It must outlive this.
  explicit SchemaReader(const SchemaJson& root) : root_(root) {}
  SchemaReader(const SchemaReader&) = delete;
  SchemaReader& operator=(const SchemaReader&) = delete;

  // A document keeps to all of the schemas where it keeps to one of the shapes. Throws
  // Error(kUnsupported) for what cannot be kept to, among it "oneOf" of schemas that may allow the
  // same document, and Error(kInvalidArgument) for what is not a schema.
  std::vector<SchemaShape> Shapes(const SchemaSet& set);
  // Says what shapes of this document allow.
  ShapeJudge& judge() { return judge_; }
  // The schema itself, or where nothing stands beside "$ref", what it refers to.
  const SchemaJson* Target(const SchemaJson* schema) const;
  // Whether the alternatives of this "anyOf" or "oneOf" can be taken one by one: nothing stands
  // beside it. null: they cannot. Throws as Shapes does.
  const SchemaJson* PlainAlternatives(const SchemaJson& schema);
  // A JSON pointer to the schema that was looked at last.
  std::string Place() const;
  void LookAt(const SchemaJson* schema) { at_ = schema; }

  // For the judge. Counts work; throws Error(kUnsupported) where it gets too much.
  void Count(size_t steps);
  // The shape, but members that it says nothing of are forbidden.
  SchemaShape Closed(const SchemaShape& shape);
  // What `prove` returns, which may read schemas that are being expanded. Where it throws, the
  // reader still says where (Place), and reads nothing more.
  template <typename Prove>
  bool LookInside(Prove&& prove) {
    std::set<const SchemaJson*> open;
    open.swap(open_);
    const SchemaJson* const at = at_;
    const bool proved = prove();
    open_.swap(open);
    at_ = at;
    return proved;
  }

 private:
  using ShapeList = std::vector<SchemaShape>;

  ShapeList Expand(const SchemaJson& schema, int depth);
  void AddReferences(const SchemaJson& schema, int depth, ShapeList& shapes);
  void AddDependents(const SchemaJson& schema, int depth, ShapeList& shapes);
  void AddNegation(const SchemaJson& schema, ShapeList& shapes);
  void AddUnevaluated(const SchemaJson& schema, ShapeList& shapes);
  ShapeList OneOf(const SchemaJson& schema, const ShapeList& beside, int depth);
  ShapeList AnyOf(const SchemaJson& list, int depth);
  ShapeList Product(const ShapeList& a, const ShapeList& b);
  SchemaShape WithoutMember(const std::string& name);

  const SchemaJson& root_;
  const SchemaJson* at_ = nullptr;
  std::set<const SchemaJson*> open_;  // that are being expanded
  // "oneOf" whose alternatives exclude each other, and whether only where they are closed.
  std::map<const SchemaJson*, bool> must_close_;
  std::deque<SchemaJson> made_;  // objects of "properties" that no document has
  size_t steps_ = 0;
  ShapeJudge judge_{*this};
};

}  // namespace hearth
