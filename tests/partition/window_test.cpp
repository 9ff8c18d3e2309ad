// Window arithmetic and borders, compared with an enumeration of every window and cell.
#include "weft/partition/window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/partition/invalid_argument.h"
#include "weft/partition/border.h"

namespace weft::partition {
namespace {

using testing::HasSubstr;

template <class Visit>
void for_each_window(Visit visit) {
  for (std::int64_t kernel = 1; kernel <= 5; ++kernel) {
    for (std::int64_t stride = 1; stride <= 4; ++stride) {
      for (std::int64_t lo = 0; lo <= 3; ++lo) {
        for (std::int64_t hi = 0; hi <= 3; ++hi) {
          for (std::int64_t dilation = 1; dilation <= 3; ++dilation) visit(Window{kernel, stride, lo, hi, dilation});
        }
      }
    }
  }
}

std::set<std::int64_t> inputs_of(const Window& window, std::int64_t output) {
  std::set<std::int64_t> inputs;
  for (std::int64_t j = 0; j < window.kernel; ++j) {
    inputs.insert(output * window.stride - window.padding_lo + window.dilation * j);
  }
  return inputs;
}

TEST(WindowTest, CountsOutputsWhoseWindowsFit) {
  for_each_window([](const Window& window) {
    for (std::int64_t size = 0; size <= 9; ++size) {
      std::int64_t fitting = 0;
      while (*inputs_of(window, fitting).rbegin() < size + window.padding_hi) ++fitting;
      ASSERT_EQ(window.outputs(size), fitting) << size << " cells, kernel " << window.kernel;
      // ceil_mode adds an output if cells remain, unless its window would start in the high padding.
      const std::int64_t room = size + window.padding_lo + window.padding_hi - window.reach();
      if (room < 0) continue;
      const bool left_over = room % window.stride != 0;
      const bool begins_inside = fitting * window.stride < size + window.padding_lo;
      Window ceil = window;
      ceil.ceil_mode = true;
      // torch also drops the last window if no cells remain but it starts in the high padding.
      const bool last_begins_inside = (fitting - 1) * window.stride < size + window.padding_lo;
      const std::int64_t expected =
          left_over ? fitting + (begins_inside ? 1 : 0) : fitting - (last_begins_inside ? 0 : 1);
      ASSERT_EQ(ceil.outputs(size), expected);
    }
  });
}

TEST(WindowTest, NeededSpansFirstToLastInput) {
  for_each_window([](const Window& window) {
    for (std::int64_t first = 0; first <= 4; ++first) {
      for (std::int64_t end = first + 1; end <= 6; ++end) {
        std::set<std::int64_t> all;
        for (std::int64_t o = first; o < end; ++o) all.merge(inputs_of(window, o));
        ASSERT_EQ(window.needed({first, end}), (Range{*all.begin(), *all.rbegin() + 1}));
      }
    }
    ASSERT_TRUE(window.needed({3, 3}).empty());
  });
}

// reaching() and taps() contain every output and kernel position that covers one of the inputs.
TEST(WindowTest, ReachingAndTapsAreComplete) {
  const Range outputs{1, 6};
  for_each_window([&](const Window& window) {
    for (std::int64_t begin = -2; begin <= 5; ++begin) {
      for (std::int64_t end = begin + 1; end <= 12; ++end) {
        const Range reaching = window.reaching({begin, end}, outputs);
        const Range taps = window.taps({begin, end}, reaching);
        for (std::int64_t o = outputs.begin; o < outputs.end; ++o) {
          const auto inputs = inputs_of(window, o);
          ASSERT_EQ(reaching.contains(o), *inputs.begin() < end && *inputs.rbegin() >= begin) << "output " << o;
          for (std::int64_t j = 0; j < window.kernel; ++j) {
            const std::int64_t seen = o * window.stride - window.padding_lo + window.dilation * j;
            if (begin <= seen && seen < end) {
              ASSERT_TRUE(taps.contains(j)) << "output " << o << " sees " << seen;
            }
          }
        }
      }
    }
    ASSERT_TRUE(window.reaching({2, 2}, outputs).empty());
    ASSERT_TRUE(window.taps({2, 2}, outputs).empty());
    ASSERT_TRUE(window.taps({2, 4}, {3, 3}).empty());
  });
  EXPECT_EQ((Window{3, 1, 1, 1}).taps({-1, 0}, {0, 1}), (Range{0, 1}))
      << "a halo of one row meets one row of a 3x3 kernel";
  EXPECT_EQ((Window{3, 1, 1, 1}).taps({8, 9}, {7, 8}), (Range{2, 3}));
}

TEST(TransposedWindowTest, NeededContainsAllContributingInputs) {
  for (std::int64_t kernel = 1; kernel <= 4; ++kernel) {
    for (std::int64_t stride = 1; stride <= 4; ++stride) {
      for (std::int64_t padding = 0; padding <= 2; ++padding) {
        for (std::int64_t dilation = 1; dilation <= 3; ++dilation) {
          const TransposedWindow window{kernel, stride, padding, 0, dilation};
          for (std::int64_t size = 1; size <= 5; ++size) {
            for (std::int64_t begin = 0; begin < window.outputs(size); ++begin) {
              const Range outputs{begin, std::min(begin + 3, window.outputs(size))};
              std::set<std::int64_t> adding;
              for (std::int64_t i = 0; i < size; ++i) {
                for (std::int64_t j = 0; j < kernel; ++j) {
                  if (outputs.contains(i * stride - padding + dilation * j)) adding.insert(i);
                }
              }
              const Range needed = window.needed(outputs, size);
              if (adding.empty()) continue;  // with dilation, an output may have no inputs
              ASSERT_LE(needed.begin, *adding.begin());
              ASSERT_GE(needed.end, *adding.rbegin() + 1);
              if (dilation == 1) {
                ASSERT_EQ(needed, (Range{*adding.begin(), *adding.rbegin() + 1}));
              }
              ASSERT_LE(window.reached(needed).begin, *adding.begin() * stride - padding + dilation * (kernel - 1));
            }
          }
        }
      }
    }
  }
}

TEST(WindowTest, ErrorsNameTheArgument) {
  EXPECT_EQ(invalid_argument_text([] { Window{0}.validate(); }), "Window: kernel must be at least 1, not 0");
  EXPECT_EQ(invalid_argument_text([] { Window{3, 0}.validate(); }), "Window: stride must be at least 1, not 0");
  EXPECT_EQ(invalid_argument_text([] { Window{3, 1, 0, -1}.validate(); }),
            "Window: padding must be at least 0, not -1");
  EXPECT_THAT(invalid_argument_text([] { TransposedWindow{3, 2, 0, 2}.validate(); }),
              HasSubstr("output_padding must be less than the larger of stride and dilation (2), not 2"));
}

TEST(CutOutputsTest, BalancedStaysBalancedAndOthersScale) {
  EXPECT_EQ(cut_outputs(Cuts::balanced(10, 2), 5), Cuts::balanced(5, 2));
  EXPECT_EQ(cut_outputs(Cuts::of_sizes({2, 0, 8}), 5), Cuts::of_sizes({1, 0, 4}));
  EXPECT_EQ(cut_outputs(Cuts::of_sizes({2, 8}), 10), Cuts::of_sizes({2, 8}));
  EXPECT_EQ(cut_outputs(Cuts::of_sizes({0, 0}), 3), Cuts::balanced(3, 2));
  for (std::int64_t outputs = 0; outputs <= 30; ++outputs) {
    ASSERT_EQ(cut_outputs(Cuts::of_sizes({7, 1, 0, 3}), outputs).total(), outputs);
  }
}

// The cell of the field that supplies a padding cell, as in torch; -1 for zero padding.
std::int64_t source_of(std::int64_t cell, std::int64_t size, Border border) {
  if (cell >= 0 && cell < size) return cell;
  switch (border) {
    case Border::kReflect:
      return cell < 0 ? -cell : 2 * (size - 1) - cell;
    case Border::kReplicate:
      return cell < 0 ? 0 : size - 1;
    case Border::kCircular:
      return (cell + size) % size;
    default:
      return -1;
  }
}

TEST(BorderTest, RunsFollowThePaddingMode) {
  for (const Border border : {Border::kZeros, Border::kReflect, Border::kReplicate, Border::kCircular}) {
    for (std::int64_t size = 1; size <= 6; ++size) {
      const std::int64_t most = border == Border::kReflect ? size - 1 : size;
      for (std::int64_t begin = -most; begin <= size + most; ++begin) {
        for (std::int64_t end = begin; end <= size + most; ++end) {
          std::vector<std::int64_t> sources(static_cast<std::size_t>(end - begin), -1);
          for (const partition::Run& run : runs({begin, end}, size, border)) {
            for (std::int64_t j = 0; j < run.target.size(); ++j) {
              sources[static_cast<std::size_t>(run.target.begin + j - begin)] = run.source + run.step * j;
            }
          }
          for (std::int64_t cell = begin; cell < end; ++cell) {
            ASSERT_EQ(sources[static_cast<std::size_t>(cell - begin)], source_of(cell, size, border));
          }
        }
      }
    }
  }
}

TEST(BorderTest, RunsWithinAnOwnerReadOnlyItsCells) {
  for (const std::int8_t step : {-1, 0, 1}) {
    const partition::Run run{{10, 15}, 6, step};
    for (std::int64_t begin = 0; begin <= 12; ++begin) {
      for (std::int64_t end = begin; end <= 13; ++end) {
        const partition::Run part = run.within({begin, end});
        for (std::int64_t j = 0; j < 5; ++j) {
          const std::int64_t source = 6 + step * j;
          ASSERT_EQ(part.target.contains(10 + j), begin <= source && source < end);
          if (!part.target.contains(10 + j)) continue;
          ASSERT_EQ(part.source + step * (10 + j - part.target.begin), source);
        }
      }
    }
  }
}

TEST(BorderTest, ErrorsStateTheMinimumSize) {
  EXPECT_THAT(invalid_argument_text([] { (void)runs({-3, 3}, 3, Border::kReflect); }),
              HasSubstr("padding of 3 by reflect needs a field of at least 4 cells, this one has 3"));
  EXPECT_THAT(invalid_argument_text([] { (void)runs({0, 7}, 3, Border::kCircular); }),
              HasSubstr("padding of 4 by circular needs a field of at least 4 cells, this one has 3"));
  EXPECT_THAT(invalid_argument_text([] { (void)parse_border("mirror"); }), HasSubstr("got 'mirror'"));
}

}  // namespace
}  // namespace weft::partition
