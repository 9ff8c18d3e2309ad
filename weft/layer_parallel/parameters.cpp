#include "weft/layer_parallel/parameters.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/message/text_collectives.h"

namespace weft::layer_parallel {
namespace {

std::vector<std::pair<at::Tensor, std::vector<int>>> users_of_parameters(const Plan& plan,
                                                                         const std::vector<Layer>& layers) {
  std::vector<std::pair<at::Tensor, std::vector<int>>> users;
  std::map<const void*, std::size_t> places;
  for (std::size_t number = 0; number < layers.size(); ++number) {
    for (const auto& parameter : layers[number].parameters) {
      const auto [place, fresh] = places.try_emplace(parameter.unsafeGetTensorImpl(), users.size());
      if (fresh) users.emplace_back(parameter, std::vector<int>());
      users[place->second].second.push_back(plan.owner(static_cast<std::int64_t>(number)));
    }
  }
  return users;
}

StateLayout::Item layout_of(const at::Tensor& tensor) { return StateLayout::of({tensor}).items.front(); }

std::string encode(const StateLayout::Item& layout) {
  std::string text;
  for (const std::int64_t number : StateLayout{{layout}}.encode()) text += std::to_string(number) + ' ';
  return text;
}

StateLayout::Item decode(const std::string& text) {
  std::istringstream in(text);
  const std::vector<std::int64_t> numbers{std::istream_iterator<std::int64_t>(in), {}};
  return StateLayout::decode(numbers.data()).items.front();
}

}  // namespace

void ParameterIndex::add(std::int64_t number, const Tensors& parameters) {
  for (const auto& parameter : parameters) {
    const auto [place, fresh] = places.try_emplace(parameter.unsafeGetTensorImpl(), unique.size());
    if (fresh) unique.push_back(parameter);
    of_layer[number].push_back(place->second);
  }
}

void GradientSums::add(std::int64_t layer, const Tensors& gradients) {
  const auto accumulate = [](at::Tensor& sum, const at::Tensor& term) {
    if (term.defined()) sum = sum.defined() ? sum.add(term) : term;
  };
  const auto found = index.of_layer.find(layer);
  const std::size_t count = found == index.of_layer.end() ? 0 : found->second.size();
  for (std::size_t i = 0; i < count; ++i) accumulate(parameters[found->second[i]], gradients[i]);
  for (std::size_t i = 0; i < extras.size(); ++i) accumulate(extras[i], gradients[count + i]);
}

SharedCopies find_shared(const Communicator& comm, double tf, const std::vector<Layer>& layers) {
  if (layers.empty()) return {};  // all ranks reject it together, later
  const Plan plan(static_cast<std::int64_t>(layers.size()), comm.size(), tf, {}, {});
  SharedCopies shared;
  std::size_t number = 0;
  for (const auto& [parameter, ranks] : users_of_parameters(plan, layers)) {
    const std::string name = std::to_string(number++);
    const bool single = std::all_of(ranks.begin(), ranks.end(), [&](int user) { return user == ranks.front(); });
    if (!single && std::find(ranks.begin(), ranks.end(), comm.rank()) != ranks.end()) shared.emplace(name, parameter);
  }
  return shared;
}

void SharedParameters::set(SharedCopies copies) {
  copies_ = std::move(copies);
  replaced_ = true;
}

bool SharedParameters::changed() const {
  return replaced_ || std::any_of(copies_.begin(), copies_.end(), [&](const auto& copy) {
           const auto known = layouts_.find(copy.first);
           return known == layouts_.end() || known->second != layout_of(copy.second);
         });
}

void SharedParameters::learn(Communicator& communicator) {
  std::string mine;
  for (const auto& [name, tensor] : copies_) mine += name + '\n' + encode(layout_of(tensor)) + '\n';
  layouts_.clear();
  replaced_ = false;
  for (const std::string& text : mpi::all_gather_text(communicator, mine, "layer_parallel (shared parameters)")) {
    std::istringstream lines(text);
    for (std::string name, layout; std::getline(lines, name) && std::getline(lines, layout);) {
      const auto [known, fresh] = layouts_.try_emplace(name, decode(layout));
      TORCH_CHECK(fresh || known->second == decode(layout), "weft: the copies of the shared parameter ", name,
                  " differ between ranks: ", StateLayout{{known->second}}.describe(), " and ",
                  StateLayout{{decode(layout)}}.describe(), "; change it on all ranks alike");
    }
  }
}

void SharedParameters::sum(const ParameterIndex& index, Tensors& gradients, Communicator& communicator) const {
  for (const auto& [name, layout] : layouts_) {
    const auto copy = copies_.find(name);
    const auto place =
        copy == copies_.end() ? index.places.end() : index.places.find(copy->second.unsafeGetTensorImpl());
    at::Tensor* mine = place == index.places.end() ? nullptr : &gradients[place->second];
    at::Tensor sum = mine != nullptr && mine->defined()
                         ? mine->cpu().contiguous().clone()
                         : at::zeros(layout.sizes, at::TensorOptions().dtype(layout.type));
    {
      const mpi::BlockingScope blocking;
      mpi::all_reduce(sum.data_ptr(), sum.data_ptr(), sum.numel(), collective::datatype_of(sum.scalar_type()),
                      mpi::ReduceOp::kSum, communicator.channel(mpi::Direction::kBackward));
    }
    if (mine != nullptr) *mine = sum.to(copy->second.device());
  }
}

}  // namespace weft::layer_parallel
