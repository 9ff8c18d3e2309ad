#include "weft/layer_parallel/shapes.h"

#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <utility>

#include "weft/collective/call.h"
#include "weft/layer_parallel/ends.h"

namespace weft::layer_parallel {
namespace {

using collective::Negotiation;
using collective::Signature;
using multigrid::TimeHierarchy;

constexpr const char* kName = "layer_parallel shapes";

Layout after(std::int64_t layer, const Layout& before, const Plan& plan, Evaluator& evaluator, at::Device device) {
  return Layout::of(evaluator.next(layer, before.zeros(device), plan.dt(), Buffers::kRestore));
}

// A layer that cannot take the input may still fit where it stands: that is no failure yet.
bool all_keep(const Layout& input, partition::Range own, const Plan& plan, Evaluator& evaluator, at::Device device) {
  try {
    for (std::int64_t layer = own.begin; layer < own.end; ++layer) {
      if (after(layer, input, plan, evaluator, device) != input) return false;
    }
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

std::vector<std::int64_t> encode(const std::vector<Layout>& layouts) {
  std::vector<std::int64_t> numbers;
  for (const auto& layout : layouts) {
    const auto more = layout.encode();
    numbers.push_back(static_cast<std::int64_t>(more.size()));
    numbers.insert(numbers.end(), more.begin(), more.end());
  }
  return numbers;
}

void append(const std::vector<std::int64_t>& numbers, std::vector<Layout>& layouts) {
  for (std::size_t i = 0; i < numbers.size(); i += static_cast<std::size_t>(numbers[i]) + 1) {
    layouts.push_back(Layout::decode(&numbers[i + 1]));
  }
}

// A coarse step is taken with its first layer only.
void require_coarse_steps_fit(const TimeHierarchy& grid, bool adjoint, const std::vector<Layout>& points) {
  const auto layers = static_cast<std::int64_t>(points.size()) - 1;
  for (int level = 1; level < grid.levels(); ++level) {
    for (std::int64_t index = 0; index < grid.steps(level); ++index) {
      const multigrid::Step step = grid.step(level, index);
      const std::int64_t first = adjoint ? layers - step.fine_stop : step.fine_start;
      const std::int64_t last = adjoint ? layers - step.fine_start : step.fine_stop;
      const Layout& one = points[static_cast<std::size_t>(first) + 1];
      const Layout& all = points[static_cast<std::size_t>(last)];
      TORCH_CHECK(one == all, "weft: layers ", first, " to ", last - 1, " lead to a state ", all.describe(),
                  ", but level ", level, adjoint ? " of the backward solve" : " of the forward solve",
                  " takes them in one step with layer ", first, " alone, which leads to ", one.describe(),
                  ". Layers that change the state's shape or type must ", "stand at multiples of ",
                  grid.stride(grid.coarsest()), adjoint ? ", counted from the end" : "",
                  "; or use one level, or put them before or behind (compose)");
    }
  }
}

}  // namespace

Shapes learn_shapes(const Layout& input, const Plan& plan, Evaluator& evaluator, at::Device device, mpi::Team& team) {
  const auto describe = [] { return std::string(kName); };
  {
    Negotiation talk(kName, team.id());
    const bool keep = all_keep(input, plan.layers_of(team.rank()), plan, evaluator, device);
    if (talk.agree(Signature(kName), keep ? 0 : 1, describe).value_max == 0) return {input, {}};
  }
  Shapes shapes{input, {input}};
  std::exception_ptr failure;
  for (int rank = 0; rank <= plan.last_rank(); ++rank) {
    std::vector<Layout> found;
    if (team.rank() == rank) {
      const partition::Range own = plan.layers_of(rank);
      try {
        for (std::int64_t layer = own.begin; layer < own.end; ++layer) {
          found.push_back(after(layer, found.empty() ? shapes.points.back() : found.back(), plan, evaluator, device));
        }
      } catch (const std::exception&) {
        failure = std::current_exception();
        found.clear();
      }
    }
    const auto numbers = announce(encode(found), rank, team);
    if (numbers.empty()) break;  // that rank failed
    append(numbers, shapes.points);
  }
  Negotiation talk(kName, team.id());
  talk.check([&] {
    if (failure) std::rethrow_exception(failure);
    if (static_cast<std::int64_t>(shapes.points.size()) != plan.layers() + 1) return;
    require_coarse_steps_fit(plan.forward(), false, shapes.points);
    require_coarse_steps_fit(plan.adjoint(), true, shapes.points);
  });
  talk.agree(Signature(kName), 0, describe);
  return shapes;
}

}  // namespace weft::layer_parallel
