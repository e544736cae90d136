#include "prepare/profile/replay_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "prepare/shapes/svg.h"

namespace hearth {
namespace {

constexpr double kWidth = 760, kHeight = 470;
constexpr double kLeft = 72, kTop = 76, kPlotWidth = 480, kPlotHeight = 320;
constexpr double kLegendLeft = kLeft + kPlotWidth + 28;
// Told apart by most colour-blind readers (Okabe and Ito 2008), in the order of policies.
constexpr std::array<std::string_view, 8> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                     "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b"};
constexpr double kMark = 3;  // half a mark's side

struct RateScale {
  double most = 1;  // capacity at the right end

  SvgPoint At(double capacity, double rate) const {
    return {kLeft + capacity / most * kPlotWidth, kTop + (1 - rate) * kPlotHeight};
  }
};

void DrawAxes(Svg& svg, const RateScale& scale) {
  for (int i = 0; i <= 5; ++i) {
    const SvgPoint left = scale.At(0, i / 5.0);
    svg.Line(left, scale.At(scale.most, i / 5.0), {.color = i == 0 ? kSvgInk : kSvgFaint});
    svg.Text({left.x - 8, left.y + 4}, fmt::format("{}%", 20 * i), {.size = 11, .anchor = "end"});
    const SvgPoint below = scale.At(scale.most * i / 5, 0);
    svg.Line(below, {below.x, below.y + 5}, {});
    svg.Text({below.x, below.y + 18}, fmt::format("{:.3g}%", 100 * scale.most * i / 5),
             {.size = 11, .anchor = "middle"});
  }
  svg.Line(scale.At(0, 0), scale.At(0, 1), {});
  svg.Text({kLeft + kPlotWidth / 2, kTop + kPlotHeight + 40}, "share that the cache holds",
           {.anchor = "middle"});
  svg.Text({kLeft - 48, kTop + kPlotHeight / 2}, "hit rate", {.anchor = "middle", .degrees = -90});
}

struct Curve {
  std::string_view name;
  std::vector<SvgPoint> points;
  SvgStroke stroke;
};

void DrawHitRates(Svg& svg, const Curve& curve, size_t row) {
  svg.Polyline(curve.points, curve.stroke);
  for (const SvgPoint& at : curve.points) {
    svg.Rect({at.x - kMark, at.y - kMark}, 2 * kMark, 2 * kMark, curve.stroke.color);
  }
  const double y = kTop + 14 + 22 * static_cast<double>(row);
  svg.Line({kLegendLeft, y - 4}, {kLegendLeft + 26, y - 4}, curve.stroke);
  svg.Text({kLegendLeft + 34, y}, curve.name, {});
}

}  // namespace

std::string PlotReplay(const AccessSequence& sequence, const ReplayResult& result) {
  std::vector<ReplayPoint> points = result.points;
  std::sort(points.begin(), points.end(),
            [](const ReplayPoint& a, const ReplayPoint& b) { return a.capacity < b.capacity; });
  const RateScale scale = {points.back().capacity};
  const auto rate = [&](int64_t hits) {
    return static_cast<double>(hits) / static_cast<double>(result.accesses);
  };
  const std::string name = sequence.model_name.empty() ? "model" : sequence.model_name;
  const char* const unit = sequence.unit == AccessUnit::kExperts ? "experts" : "neurons";
  Svg svg(kWidth, kHeight, fmt::format("Hit rates of a cache for {}", name));
  svg.Text({24, 30}, name, {.size = 17, .bold = true});
  svg.Text({24, 50},
           fmt::format("hit rates of a cache of {}: {} accesses to {} of them, {} passes", unit,
                       result.accesses, sequence.num_keys(), sequence.num_passes()),
           {});
  DrawAxes(svg, scale);

  std::vector<Curve> curves(points.front().policies.size() + 1);
  curves[0] = {"Belady's bound", {}, {.color = kSvgInk, .width = 1.5, .dashed = true}};
  for (const ReplayPoint& point : points) {
    curves[0].points.push_back(scale.At(point.capacity, rate(point.belady_hits)));
    for (size_t i = 0; i < point.policies.size(); ++i) {
      const ReplayHits& hits = point.policies[i];
      Curve& curve = curves[i + 1];
      curve.name = CachePolicyName(hits.policy);
      curve.stroke = {.color = kColors[static_cast<size_t>(hits.policy) % kColors.size()],
                      .width = hits.policy == kDefaultCachePolicy ? 3.0 : 1.5};
      curve.points.push_back(scale.At(point.capacity, rate(hits.hits)));
    }
  }
  for (size_t i = 0; i < curves.size(); ++i) DrawHitRates(svg, curves[i], i);
  return svg.Finish();
}

}  // namespace hearth
