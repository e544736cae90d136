#include "text/grammar/json_shape_judge.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "text/grammar/json_schema_reader.h"
#include "text/grammar/json_string_language.h"
#include "text/grammar/json_string_pattern.h"

namespace hearth {
namespace {

using Json = SchemaJson;
using ShapeList = std::vector<SchemaShape>;

constexpr int kDeepestProof = 3;  // of members and items that tell alternatives apart
constexpr size_t kMostCompared = 200;

constexpr uint8_t kNumbers = kIntegerKind | kFractionKind;

bool HasNoNumber(const SchemaShape& shape) {
  if (!shape.numbers.low || !shape.numbers.high) return false;
  SchemaShape bounds;
  bounds.numbers = shape.numbers;
  bounds.kinds = shape.kinds & kNumbers;
  return Both(bounds, SchemaShape()).kinds == 0;
}

bool HasNoString(const SchemaShape& shape) {
  if (shape.strings.patterns.size() < 2) return false;
  StringLanguage language;
  for (const std::string& pattern : shape.strings.patterns) {
    language.Require(pattern, PatternClasses::kWide);
  }
  language.Bound(shape.strings.min, shape.strings.max);
  return language.IsEmpty();
}

}  // namespace

bool ShapeJudge::AreDisjoint(const std::vector<ShapeList>& branches, bool closed) {
  is_loose_ = true;
  const bool are_disjoint = reader_.LookInside([&] { return AreApart(branches, closed); });
  is_loose_ = false;
  return are_disjoint;
}

bool ShapeJudge::AreApart(const std::vector<ShapeList>& branches, bool closed) {
  std::vector<BranchShape> objects, others;
  for (size_t i = 0; i < branches.size(); ++i) {
    for (const SchemaShape& shape : branches[i]) {
      (shape.kinds == kObjectKind ? objects : others).emplace_back(&shape, i);
    }
  }
  const auto apart = [&](const auto& a, const auto& b) {
    return a.second == b.second || ExcludeEachOther(*a.first, *b.first, closed);
  };
  for (size_t a = 0; a < others.size(); ++a) {
    for (size_t b = a + 1; b < others.size(); ++b) {
      if (!apart(others[a], others[b])) return false;
    }
    for (const auto& object : objects) {
      if (!apart(others[a], object)) return false;
    }
  }
  if (HaveTag(objects)) return true;
  if (objects.size() > kMostCompared) {
    UnsupportedSchema("'oneOf' of more than " + std::to_string(kMostCompared) +
                      " objects that no property tells apart");
  }
  for (size_t a = 0; a < objects.size(); ++a) {
    for (size_t b = a + 1; b < objects.size(); ++b) {
      if (!apart(objects[a], objects[b])) return false;
    }
  }
  return true;
}

bool ShapeJudge::IsTag(const std::string& name, const std::vector<BranchShape>& objects) {
  std::map<std::string, size_t> owners;
  for (const auto& [shape, branch] : objects) {
    if (!shape->Requires(name)) return false;
    for (const SchemaShape& value : reader_.Shapes(shape->MemberSchemas(name))) {
      if (!value.values) return false;
      for (const Json* one : *value.values) {
        if (owners.emplace(EqualityText(*one), branch).first->second != branch) return false;
      }
    }
  }
  return true;
}

// Whether one property tells all of these objects apart.
bool ShapeJudge::HaveTag(const std::vector<BranchShape>& objects) {
  if (objects.size() < 2) return true;
  for (const std::string& name : objects[0].first->objects.required) {
    if (IsTag(name, objects)) return true;
  }
  return false;
}

// closed: members that an alternative says nothing of are not written.
bool ShapeJudge::ExcludeEachOther(const SchemaShape& a, const SchemaShape& b, bool closed) {
  if ((a.kinds & b.kinds) == 0) return true;
  if (!closed) return IsEmpty(Both(a, b), 0);
  return IsEmpty(Both(reader_.Closed(a), b), 0) && IsEmpty(Both(a, reader_.Closed(b)), 0);
}

bool ShapeJudge::IsEmpty(const SchemaSet& set, int depth) {
  const ShapeList shapes = reader_.Shapes(set);
  return std::all_of(shapes.begin(), shapes.end(),
                     [&](const SchemaShape& shape) { return IsEmpty(shape, depth); });
}

// Whether no document has this shape, as far as that is easy to say.
bool ShapeJudge::IsEmpty(const SchemaShape& shape, int depth) {
  reader_.Count(1);
  if (shape.kinds == 0) return true;
  if (depth > kDeepestProof) return false;
  if (shape.values) {
    return std::none_of(shape.values->begin(), shape.values->end(),
                        [&](const Json* value) { return Accepts(shape, *value); });
  }
  if ((shape.kinds & (kNullKind | kBooleanKind)) != 0) return false;
  if ((shape.kinds & kNumbers) != 0 && !HasNoNumber(shape)) return false;
  if ((shape.kinds & kStringKind) != 0 && !HasNoString(shape)) return false;
  if ((shape.kinds & kArrayKind) != 0) {
    bool has_none = false;
    for (int64_t i = 0; i < std::min<int64_t>(shape.arrays.min, 8) && !has_none; ++i) {
      has_none = IsEmpty(shape.ItemSchemas(static_cast<size_t>(i)), depth + 1);
    }
    if (!has_none) return false;
  }
  if ((shape.kinds & kObjectKind) == 0) return true;
  const auto& required = shape.objects.required;
  return std::any_of(required.begin(), required.end(), [&](const std::string& name) {
    return IsEmpty(shape.MemberSchemas(name), depth + 1);
  });
}

bool ShapeJudge::Accepts(const SchemaSet& set, const Json& value) {
  const ShapeList shapes = reader_.Shapes(set);
  return std::any_of(shapes.begin(), shapes.end(),
                     [&](const SchemaShape& shape) { return Accepts(shape, value); });
}

bool ShapeJudge::Accepts(const SchemaShape& shape, const Json& value) {
  const uint8_t kind = KindOfValue(value);
  if ((shape.kinds & kind) == 0) return false;
  if (shape.values || !shape.forbidden.empty()) {
    const std::string text = EqualityText(value);
    const auto is_same = [&](const Json* other) { return EqualityText(*other) == text; };
    const auto& no = shape.forbidden;
    if (std::any_of(no.begin(), no.end(), is_same)) return false;
    if (shape.values && std::none_of(shape.values->begin(), shape.values->end(), is_same)) {
      return false;
    }
  }
  if ((kind & kNumbers) != 0) {
    const Decimal number = DecimalOf(value);
    return shape.numbers.Hold(number) &&
           std::all_of(shape.units.begin(), shape.units.end(),
                       [&](const Decimal& unit) { return IsMultiple(number, unit); });
  }
  if (kind == kStringKind) return AcceptsString(shape, value.get<std::string>());
  if (kind == kArrayKind) return AcceptsArray(shape, value);
  if (kind == kObjectKind) return AcceptsObject(shape, value);
  return true;
}

bool ShapeJudge::AcceptsString(const SchemaShape& shape, const std::string& text) const {
  StringLanguage language;
  language.Bound(shape.strings.min, shape.strings.max);
  for (const std::string& pattern : shape.strings.patterns) {
    language.Require(pattern, is_loose_ ? PatternClasses::kWide : PatternClasses::kNarrow);
  }
  for (const std::string& format : shape.strings.formats) {
    const std::string pattern = is_loose_ ? "" : PatternOfFormat(format);
    if (!pattern.empty()) language.Require(pattern);
  }
  return language.Matches(text);
}

bool ShapeJudge::AcceptsArray(const SchemaShape& shape, const Json& value) {
  const auto size = static_cast<int64_t>(value.size());
  if (size < shape.arrays.min || (shape.arrays.max >= 0 && size > shape.arrays.max)) return false;
  std::set<std::string> seen;
  for (size_t i = 0; i < value.size(); ++i) {
    if (shape.arrays.is_unique && !seen.insert(EqualityText(value[i])).second) return false;
    if (!Accepts(shape.ItemSchemas(i), value[i])) return false;
  }
  return true;
}

bool ShapeJudge::AcceptsObject(const SchemaShape& shape, const Json& value) {
  const auto size = static_cast<int64_t>(value.size());
  if (size < shape.objects.min || (shape.objects.max >= 0 && size > shape.objects.max)) {
    return false;
  }
  for (const std::string& name : shape.objects.required) {
    if (!value.contains(name)) return false;
  }
  for (const auto& [name, member] : value.items()) {
    if (!Accepts(shape.objects.names, Json(name))) return false;
    if (!Accepts(shape.MemberSchemas(name), member)) return false;
  }
  return true;
}

}  // namespace hearth
