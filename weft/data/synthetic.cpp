#include "weft/data/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "weft/data/random_stream.h"

namespace weft::data {
namespace {

struct Named {
  std::string_view name;
  Picture picture;
  std::int64_t most_classes;
};

constexpr std::array<Named, 3> kPictures{
    {{"toy_images", Picture::kToyImages, 2}, {"blobs", Picture::kBlobs, 1000}, {"shapes", Picture::kShapes, 6}}};

const Named& named(Picture picture) {
  return *std::find_if(kPictures.begin(), kPictures.end(), [&](const Named& one) { return one.picture == picture; });
}

// The position of a pixel relative to a figure's center, in units of the figure's half width and half height.
struct Offset {
  double x;
  double y;
  [[nodiscard]] double radius() const { return std::hypot(x, y); }
  [[nodiscard]] double largest() const { return std::max(std::abs(x), std::abs(y)); }
};

// The position and size of a figure, in pixels.
struct Figure {
  double x;
  double y;
  double half_width;
  double half_height;

  [[nodiscard]] Offset offset(std::int64_t row, std::int64_t column) const {
    return {(static_cast<double>(column) + 0.5 - x) / half_width, (static_cast<double>(row) + 0.5 - y) / half_height};
  }
};

bool inside(std::int64_t shape, const Offset& at) {
  switch (shape) {
    case 0:  // disc
      return at.radius() <= 1;
    case 1:  // square
      return at.largest() <= 0.85;
    case 2:  // triangle, point up
      return at.y <= 0.9 && at.y >= -1 && std::abs(at.x) <= (at.y + 1) / 2;
    case 3:  // cross
      return at.largest() <= 1 && std::min(std::abs(at.x), std::abs(at.y)) <= 0.3;
    case 4:  // ring
      return at.radius() <= 1 && at.radius() >= 0.6;
    default:  // diamond
      return std::abs(at.x) + std::abs(at.y) <= 1;
  }
}

std::uint8_t byte(double brightness) {
  return static_cast<std::uint8_t>(std::lround(255 * std::clamp(brightness, 0.0, 1.0)));
}

// Fills the image channel by channel; `brightness(channel, row, column)` returns a value between 0 and 1.
template <typename Brightness>
void paint(std::span<std::uint8_t> pixels, const ImageSet& set, Brightness brightness) {
  std::size_t i = 0;
  for (std::int64_t channel = 0; channel < set.channels; ++channel) {
    for (std::int64_t row = 0; row < set.height; ++row) {
      for (std::int64_t column = 0; column < set.width; ++column) {
        pixels[i++] = byte(brightness(channel, row, column));
      }
    }
  }
}

std::vector<double> colour(RandomStream& random, std::int64_t channels, double least) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < channels; ++i) result.push_back(random.uniform(least, 1));
  return result;
}

void paint_toy(std::span<std::uint8_t> pixels, const ImageSet& set, std::int64_t label, RandomStream& random) {
  const double side = static_cast<double>(std::min(set.height, set.width));
  const double first = random.uniform(side / 8, side / 2);
  // Ellipses that are nearly circles would be indistinguishable from class 0.
  const double second = label == 0 ? first : first * random.uniform(0.3, 0.7);
  const bool tall = random.below(2) == 1;
  const Figure figure{static_cast<double>(set.width) / 2, static_cast<double>(set.height) / 2, tall ? second : first,
                      tall ? first : second};
  const auto shade = colour(random, set.channels, 0.3);
  paint(pixels, set, [&](std::int64_t channel, std::int64_t row, std::int64_t column) {
    return figure.offset(row, column).radius() <= 1 ? shade[channel] : 0.0;
  });
}

void paint_blob(std::span<std::uint8_t> pixels, const ImageSet& set, std::int64_t label, RandomStream& random) {
  const double side = static_cast<double>(std::min(set.height, set.width));
  const double angle = 2 * std::numbers::pi * static_cast<double>(label) / static_cast<double>(set.classes);
  const Figure spot{static_cast<double>(set.width) / 2 + side * (0.28 * std::cos(angle) + 0.03 * random.normal()),
                    static_cast<double>(set.height) / 2 + side * (0.28 * std::sin(angle) + 0.03 * random.normal()),
                    side / 8, side / 8};
  const auto shade = colour(random, set.channels, 0.6);
  paint(pixels, set, [&](std::int64_t channel, std::int64_t row, std::int64_t column) {
    const double distance = spot.offset(row, column).radius();
    return shade[channel] * std::exp(-distance * distance / 2) + 0.05 * random.normal();
  });
}

void paint_shape(std::span<std::uint8_t> pixels, const ImageSet& set, std::int64_t label, RandomStream& random) {
  const double half = static_cast<double>(std::min(set.height, set.width)) * random.uniform(0.15, 0.35);
  const Figure figure{random.uniform(half, static_cast<double>(set.width) - half),
                      random.uniform(half, static_cast<double>(set.height) - half), half, half};
  const auto shade = colour(random, set.channels, 0.5);
  const double ground = random.uniform(0, 0.2);
  paint(pixels, set, [&](std::int64_t channel, std::int64_t row, std::int64_t column) {
    const double clean = inside(label, figure.offset(row, column)) ? shade[channel] : ground;
    return clean + 0.05 * random.normal();
  });
}

void require(bool holds, const std::string& expected, std::int64_t got) {
  if (!holds) throw std::invalid_argument("weft: expected " + expected + ", got " + std::to_string(got));
}

}  // namespace

Picture parse_picture(std::string_view name) {
  std::string known;
  for (const Named& one : kPictures) {
    if (one.name == name) return one.picture;
    known.append(known.empty() ? "" : ", ").append(one.name);
  }
  throw std::invalid_argument("weft: unknown synthetic set '" + std::string(name) + "'; use one of " + known);
}

SyntheticImages::SyntheticImages(const SyntheticOptions& options)
    : options_(options),
      set_{options.count, options.channels, options.height, options.width, options.classes},
      next_(options.first) {
  require(options.count >= 0, "at least 0 images", options.count);
  require(options.first >= 0, "a first image index of at least 0", options.first);
  require(options.channels >= 1, "at least 1 channel", options.channels);
  require(options.height >= 1, "a height of at least 1", options.height);
  require(options.width >= 1, "a width of at least 1", options.width);
  const Named& one = named(options.picture);
  require(options.classes >= 1 && options.classes <= one.most_classes,
          "from 1 to " + std::to_string(one.most_classes) + " classes of " + std::string(one.name), options.classes);
}

std::int64_t SyntheticImages::read(std::span<std::uint8_t> pixels) {
  RandomStream random(options_.seed, {static_cast<std::int64_t>(options_.picture), next_++});
  const std::int64_t label = random.below(set_.classes);
  switch (options_.picture) {
    case Picture::kToyImages:
      paint_toy(pixels, set_, label, random);
      break;
    case Picture::kBlobs:
      paint_blob(pixels, set_, label, random);
      break;
    case Picture::kShapes:
      paint_shape(pixels, set_, label, random);
      break;
  }
  return label;
}

ImageOrigin synthetic_origin(const SyntheticOptions& options, const std::string& portion) {
  std::string name(named(options.picture).name);
  for (const std::int64_t value :
       {options.count, options.channels, options.height, options.width, options.classes, options.first}) {
    name.append(" ").append(std::to_string(value));
  }
  name.append(" seed ").append(std::to_string(options.seed));
  return {std::move(name), portion, {}, [options] { return std::make_unique<SyntheticImages>(options); }};
}

}  // namespace weft::data
