#include "prepare/shapes/svg.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

constexpr size_t kMaxTextChars = 200;

// The page's own colours, light; the style sheet in the document has the dark ones.
constexpr std::string_view kInkLight = "#3b2412";
constexpr std::string_view kFaintLight = "#dccbb6";
constexpr std::string_view kStyle =
    "<style>@media (prefers-color-scheme: dark) {"
    " .page { fill: #1d1814 } .fill-ink { fill: #f0e4d6 } .ink { stroke: #f0e4d6 }"
    " .fill-faint { fill: #4a3f34 } .faint { stroke: #4a3f34 } }</style>\n";

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : Printable(text, kMaxTextChars)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// fill="..." or stroke="..."; the page's own colours get a class that the style sheet knows.
std::string Paint(std::string_view attribute, std::string_view color) {
  const std::string_view prefix = attribute == "fill" ? "fill-" : "";
  if (color == kSvgInk)
    return fmt::format("{}=\"{}\" class=\"{}ink\"", attribute, kInkLight, prefix);
  if (color == kSvgFaint) {
    return fmt::format("{}=\"{}\" class=\"{}faint\"", attribute, kFaintLight, prefix);
  }
  return fmt::format("{}=\"{}\"", attribute, color);
}

std::string Pen(const SvgStroke& stroke) {
  return fmt::format("{} stroke-width=\"{:g}\"{}", Paint("stroke", stroke.color), stroke.width,
                     stroke.dashed ? " stroke-dasharray=\"4 3\"" : "");
}

}  // namespace

Svg::Svg(double width, double height, std::string_view title) {
  body_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" "
      "height=\"{1:g}\" font-family=\"sans-serif\">\n<title>{2}</title>\n{3}"
      "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"#fffaf3\" class=\"page\"/>\n",
      width, height, Escaped(title), kStyle);
}

void Svg::Rect(SvgPoint corner, double width, double height, std::string_view fill) {
  body_ += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" {}/>\n",
                       corner.x, corner.y, width, height, Paint("fill", fill));
}

void Svg::Line(SvgPoint from, SvgPoint to, const SvgStroke& stroke) {
  body_ += fmt::format("<line x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\" {}/>\n",
                       from.x, from.y, to.x, to.y, Pen(stroke));
}

void Svg::Polyline(std::span<const SvgPoint> points, const SvgStroke& stroke) {
  body_ += "<polyline fill=\"none\" " + Pen(stroke) + " points=\"";
  for (const SvgPoint& point : points) body_ += fmt::format("{:.1f},{:.1f} ", point.x, point.y);
  body_ += "\"/>\n";
}

void Svg::Text(SvgPoint at, std::string_view text, const SvgText& style) {
  const std::string turn =
      style.degrees == 0
          ? ""
          : fmt::format(" transform=\"rotate({:g} {:.1f} {:.1f})\"", style.degrees, at.x, at.y);
  body_ += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:g}\" text-anchor=\"{}\"{}{} {}>{}</text>\n",
      at.x, at.y, style.size, style.anchor, style.bold ? " font-weight=\"bold\"" : "", turn,
      Paint("fill", kSvgInk), Escaped(text));
}

std::string Svg::Finish() { return std::move(body_) + "</svg>\n"; }

}  // namespace hearth
