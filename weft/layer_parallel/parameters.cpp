#include "weft/layer_parallel/parameters.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"

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

}  // namespace

void ParameterIndex::add(std::int64_t number, const Tensors& parameters) {
  for (const auto& parameter : parameters) {
    const auto [place, fresh] = places.try_emplace(parameter.unsafeGetTensorImpl(), unique.size());
    if (fresh) unique.push_back(parameter);
    of_layer[number].push_back(place->second);
  }
}

std::vector<SharedParameter> find_shared(const Communicator& comm, double tf, const std::vector<Layer>& layers) {
  if (layers.empty()) return {};  // all ranks reject an empty network together, later
  const int rank = comm.rank();
  const Plan plan(static_cast<std::int64_t>(layers.size()), comm.size(), tf, {}, {});
  std::vector<SharedParameter> shared;
  for (const auto& [parameter, ranks] : users_of_parameters(plan, layers)) {
    if (std::all_of(ranks.begin(), ranks.end(), [&](int user) { return user == ranks.front(); })) continue;
    const bool mine = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    shared.push_back({mine ? parameter : at::Tensor(), StateLayout::of({parameter}).items.front()});
  }
  return shared;
}

void sum_copies(const std::vector<SharedParameter>& shared, const ParameterIndex& index, Tensors& gradients,
                Communicator& communicator) {
  for (const auto& parameter : shared) {
    const auto place = index.places.find(parameter.mine.unsafeGetTensorImpl());
    at::Tensor* mine = place == index.places.end() ? nullptr : &gradients[place->second];
    const auto options = at::TensorOptions().dtype(parameter.layout.type);
    at::Tensor sum = mine != nullptr && mine->defined() ? mine->cpu().contiguous().clone()
                                                        : at::zeros(parameter.layout.sizes, options);
    {
      const mpi::BlockingScope blocking;
      mpi::all_reduce(sum.data_ptr(), sum.data_ptr(), sum.numel(), collective::datatype_of(sum.scalar_type()),
                      mpi::ReduceOp::kSum, communicator.channel(mpi::Direction::kBackward));
    }
    if (mine != nullptr) *mine = sum.to(parameter.mine.device());
  }
}

}  // namespace weft::layer_parallel
