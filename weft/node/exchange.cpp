#include "weft/node/exchange.h"

#include <algorithm>
#include <cstring>

#include "weft/mpi/fingerprint.h"
#include "weft/mpi/message/exchange.h"
#include "weft/node/options.h"

namespace weft::node {
namespace {

constexpr std::int64_t kLine = 64;

class Exchange final : public SlotOperation {
 public:
  Exchange(std::shared_ptr<Group> group, const char* kind, std::vector<Given> given, bool same_for_all,
           std::vector<Taken> taken, std::shared_ptr<void> keep)
      : SlotOperation(std::move(group), mpi::Fingerprint(kind).value(), std::move(keep)),
        given_(std::move(given)),
        taken_(std::move(taken)),
        limit_(largest_copy(this->group(), same_for_all)),
        same_for_all_(same_for_all) {
    const int size = this->group().size();
    const int me = this->group().rank();
    // Every rank starts with a different source.
    for (int k = 1; k < size; ++k) {
      const int source = (me + k) % size;
      if (taken_[index(source)].bytes > 0) sources_.push_back(source);
    }
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  void post() override {
    const int me = group().rank();
    Exposure* exposures = exposures_of(me);
    bool copied = false;
    for (int rank = 0; rank < group().size(); ++rank) {
      const Given& piece = given_[index(rank)];
      if (rank == me) {
        const Taken& own = taken_[index(me)];
        if (own.bytes > 0 && own.data != piece.data)
          std::memmove(own.data, piece.data, static_cast<std::size_t>(own.bytes));
        continue;
      }
      exposures[rank] = {reinterpret_cast<std::uint64_t>(piece.data), 0, piece.bytes};
      if (piece.bytes == 0 || piece.bytes > limit_ || (same_for_all_ && copied)) continue;
      std::memcpy(area_of(me) + offset(rank), piece.data, static_cast<std::size_t>(piece.bytes));
      copied = true;
    }
  }

  bool work() override {
    std::erase_if(sources_, [&](int source) { return take(source); });
    return sources_.empty();
  }

  bool take(int source) {
    if (!has_posted(source)) return false;
    const Taken& target = taken_[index(source)];
    const Exposure& exposure = exposures_of(source)[group().rank()];
    if (!mismatched() && exposure.bytes != target.bytes) {
      record_mismatch(mpi::length_mismatch_text(source, std::to_string(exposure.bytes), target.bytes));
    }
    if (mismatched()) return true;
    if (target.bytes <= limit_) {
      std::memcpy(target.data, area_of(source) + offset(group().rank()), static_cast<std::size_t>(target.bytes));
    } else {
      group().read(source, exposure.in, target.data, target.bytes);
    }
    return true;
  }

  [[nodiscard]] bool exposed_to(int rank) const override {
    return rank != group().rank() && given_[index(rank)].bytes > limit_;
  }

  [[nodiscard]] std::int64_t offset(int rank) const {
    return same_for_all_ ? 0 : rank * (Group::capacity() / group().size() / kLine * kLine);
  }

  std::vector<Given> given_;
  std::vector<Taken> taken_;
  std::vector<int> sources_;  // ranks whose piece is missing
  std::int64_t limit_;
  bool same_for_all_;
};

}  // namespace

std::int64_t largest_copy(const Group& group, bool same_for_all) {
  const std::int64_t fits = same_for_all ? Group::capacity() : Group::capacity() / group.size() / kLine * kLine;
  // Without cross-memory attach, larger copies are still faster than MPI.
  return group.cross_memory() ? std::min(options().copy_bytes, fits) : fits;
}

std::shared_ptr<Group> group_for_pieces(mpi::CommView comm, std::span<const std::int64_t> bytes, bool same_for_all) {
  auto group = Group::of(comm);
  if (group == nullptr || group->cross_memory()) return group;
  return *std::max_element(bytes.begin(), bytes.end()) <= largest_copy(*group, same_for_all) ? group : nullptr;
}

std::unique_ptr<mpi::Operation> start_exchange(std::shared_ptr<Group> group, const char* kind, std::vector<Given> given,
                                               bool same_for_all, std::vector<Taken> taken,
                                               std::shared_ptr<void> keep) {
  return std::make_unique<Exchange>(std::move(group), kind, std::move(given), same_for_all, std::move(taken),
                                    std::move(keep));
}

}  // namespace weft::node
