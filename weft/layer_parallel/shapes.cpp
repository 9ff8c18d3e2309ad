#include "weft/layer_parallel/shapes.h"

#include <c10/util/Exception.h>

#include <exception>
#include <map>
#include <string>
#include <utility>

#include "weft/collective/autograd/call.h"
#include "weft/layer_parallel/state_transfer.h"

namespace weft::layer_parallel {
namespace {

using collective::CollectiveCall;
using collective::Signature;
using multigrid::TimeHierarchy;

constexpr const char* kName = "layer_parallel shapes";

// Finds the layout after a layer by evaluating it on a sample, once for all layers of the same kind.
class LayoutFinder {
 public:
  LayoutFinder(const Plan& plan, LayerEvaluator& evaluator, at::Device device)
      : plan_(plan), evaluator_(evaluator), device_(device) {}

  StateLayout after(std::int64_t layer, const StateLayout& before) {
    std::string kind = evaluator_.kind(layer);
    if (kind.empty()) return evaluate(layer, before);
    const auto [found, absent] = known_.try_emplace({std::move(kind), before.encode()});
    if (absent) {
      try {
        found->second = evaluate(layer, before);
      } catch (...) {
        known_.erase(found);
        throw;
      }
    }
    return found->second;
  }

 private:
  [[nodiscard]] StateLayout evaluate(std::int64_t layer, const StateLayout& before) {
    return StateLayout::of(evaluator_.next(layer, before.sample(device_), plan_.dt(), Buffers::kRestore));
  }

  const Plan& plan_;
  LayerEvaluator& evaluator_;
  at::Device device_;
  std::map<std::pair<std::string, std::vector<std::int64_t>>, StateLayout> known_;
};

// A layer that rejects the network's input may accept its actual input, so an exception is not an error yet, unless the
// user interrupted the layer: then `interrupt` is set.
bool all_preserve(const StateLayout& input, partition::Range own, LayoutFinder& finder, std::exception_ptr& interrupt) {
  try {
    for (std::int64_t layer = own.begin; layer < own.end; ++layer) {
      if (finder.after(layer, input) != input) return false;
    }
  } catch (const Interrupted&) {
    interrupt = std::current_exception();
    return false;
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

std::vector<std::int64_t> encode(const std::vector<StateLayout>& layouts) {
  std::vector<std::int64_t> numbers;
  for (const auto& layout : layouts) {
    const auto more = layout.encode();
    numbers.push_back(static_cast<std::int64_t>(more.size()));
    numbers.insert(numbers.end(), more.begin(), more.end());
  }
  return numbers;
}

void append(const std::vector<std::int64_t>& numbers, std::vector<StateLayout>& layouts) {
  for (std::size_t i = 0; i < numbers.size(); i += static_cast<std::size_t>(numbers[i]) + 1) {
    layouts.push_back(StateLayout::decode(&numbers[i + 1]));
  }
}

// All ranks get the text of the layer's error; its own rank also gets the original exception.
[[noreturn]] void throw_with_cause(const std::string& text, const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (...) {
    std::throw_with_nested(LayerError(text));
  }
}

// A coarse step evaluates only the first of its layers.
void require_coarse_steps_fit(const TimeHierarchy& grid, bool adjoint, const std::vector<StateLayout>& points) {
  const auto layers = static_cast<std::int64_t>(points.size()) - 1;
  for (int level = 1; level < grid.levels(); ++level) {
    for (std::int64_t index = 0; index < grid.steps(level); ++index) {
      const multigrid::Step step = grid.step(level, index);
      const std::int64_t first = adjoint ? layers - step.fine_stop : step.fine_start;
      const std::int64_t last = adjoint ? layers - step.fine_start : step.fine_stop;
      const StateLayout& one = points[static_cast<std::size_t>(first) + 1];
      const StateLayout& all = points[static_cast<std::size_t>(last)];
      TORCH_CHECK(one == all, "weft: layers ", first, " to ", last - 1, " return a state ", all.describe(),
                  ", but level ", level, adjoint ? " of the backward solve" : " of the forward solve",
                  " replaces them by one step with layer ", first, ", which returns ", one.describe(),
                  ". Layers that change the state's shape or type must be at multiples of ",
                  grid.stride(grid.coarsest()), adjoint ? ", counted from the end" : "",
                  "; or use one level, or move them before or after the network (compose)");
    }
  }
}

}  // namespace

Shapes learn_shapes(const StateLayout& input, const Plan& plan, LayerEvaluator& evaluator, at::Device device,
                    Communicator& communicator) {
  const auto describe = [] { return std::string(kName); };
  LayoutFinder finder(plan, evaluator, device);
  std::exception_ptr failure;
  {
    CollectiveCall call(kName, communicator.id());
    const bool keep = all_preserve(input, plan.layers_of(communicator.rank()), finder, failure);
    if (call.agree(Signature(kName), keep ? 0 : 1, describe).value_max == 0) return {input, {}};
  }
  Shapes shapes{input, {input}};
  for (int rank = 0; rank <= plan.last_rank(); ++rank) {
    std::vector<StateLayout> found;
    if (communicator.rank() == rank && !failure) {
      const partition::Range own = plan.layers_of(rank);
      try {
        for (std::int64_t layer = own.begin; layer < own.end; ++layer) {
          found.push_back(finder.after(layer, found.empty() ? shapes.points.back() : found.back()));
        }
      } catch (const std::exception&) {
        failure = std::current_exception();
        found.clear();
      }
    }
    const auto numbers = broadcast_numbers(encode(found), rank, communicator);
    if (numbers.empty()) break;  // the rank failed
    append(numbers, shapes.points);
  }
  CollectiveCall call(kName, communicator.id());
  call.check([&] {
    if (failure) std::rethrow_exception(failure);
    if (static_cast<std::int64_t>(shapes.points.size()) != plan.layers() + 1) return;
    require_coarse_steps_fit(plan.forward(), false, shapes.points);
    require_coarse_steps_fit(plan.adjoint(), true, shapes.points);
  });
  try {
    call.agree(Signature(kName), 0, describe);
  } catch (const mpi::SharedFailure& error) {
    if (failure) throw_with_cause(error.what(), failure);
    throw;
  }
  return shapes;
}

}  // namespace weft::layer_parallel
