// A small writer of SVG pictures: shapes and text, readable on light and dark pages.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hearth {

// Lengths are pixels from the top left corner. Colours are "#rrggbb", or one of the page's own,
// which follow the reader's light or dark scheme:
inline constexpr std::string_view kSvgInk = "ink";      // text and axes
inline constexpr std::string_view kSvgFaint = "faint";  // grids

struct SvgPoint {
  double x = 0;
  double y = 0;
};

struct SvgText {
  double size = 12;
  std::string_view anchor = "start";  // "start", "middle" or "end" of the text is at the point
  bool bold = false;
  double degrees = 0;  // turned clockwise about the point
};

struct SvgStroke {
  std::string_view color = kSvgInk;
  double width = 1;
  bool dashed = false;
};

class Svg {
 public:
  // `title` is what screen readers and tooltips say. Texts may hold any bytes: what is no plain
  // ASCII is shown as Printable does.
  Svg(double width, double height, std::string_view title);

  void Rect(SvgPoint corner, double width, double height, std::string_view fill);
  void Line(SvgPoint from, SvgPoint to, const SvgStroke& stroke);
  void Polyline(std::span<const SvgPoint> points, const SvgStroke& stroke);
  void Text(SvgPoint at, std::string_view text, const SvgText& style = {});

  // The document. Ends the object's use.
  std::string Finish();

 private:
  std::string body_;
};

}  // namespace hearth
