// A random sequence of collectives. All ranks draw the same sequence, and each computes the expected result by itself.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "weft/mpi/chunks.h"
#include "weft/node/all_gather.h"
#include "weft/node/all_reduce.h"
#include "weft/node/all_to_all.h"
#include "weft/node/broadcast.h"
#include "weft/node/gather.h"
#include "weft/node/reduce.h"
#include "weft/node/reduce_scatter.h"
#include "weft/node/reduction.h"
#include "weft/node/scatter.h"

namespace weft::node {

using Bytes = std::vector<std::byte>;
using Counts = std::vector<std::int64_t>;

class RandomCollectives {
 public:
  // `largest`: elements of the largest message. `communicator`: the owner of `comm`, if there is one.
  RandomCollectives(mpi::CommView comm, unsigned seed, std::int64_t largest, mpi::Communicator* communicator = nullptr)
      : comm_(comm), random_(seed), largest_(largest), communicator_(communicator) {}

  void step() {
    ++number_;
    root_ = static_cast<int>(below(comm_.size()));
    type_ = static_cast<Datatype>(below(mpi::kDatatypeCount));
    do {
      op_ = static_cast<ReduceOp>(below(mpi::kReduceOpCount));
    } while (!mpi::supports(op_, type_));
    switch (below(8)) {
      case 0:
        return all_reduce();
      case 1:
        return reduce();
      case 2:
        return reduce_scatter();
      case 3:
        return broadcast();
      case 4:
        return all_gather();
      case 5:
        return gather();
      case 6:
        return scatter();
      default:
        return all_to_all();
    }
  }

 private:
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit));
  }
  // Small sizes as often as large ones, and empty messages.
  std::int64_t draw_count() { return below(8) == 0 ? 0 : below(std::int64_t{1} << below(width_of(largest_))) + 1; }
  static std::int64_t width_of(std::int64_t value) { return value < 2 ? 1 : 1 + width_of(value / 2); }
  Counts draw_counts() {
    Counts counts(static_cast<std::size_t>(comm_.size()));
    for (auto& count : counts) count = draw_count();
    return counts;
  }

  // The input of a rank. Ones and small integers are valid in every type, and no type overflows.
  [[nodiscard]] Bytes input(int rank, std::int64_t count) const {
    std::mt19937 values(static_cast<unsigned>(number_ * 64 + rank));
    Bytes bytes(static_cast<std::size_t>(count * mpi::size_of(type_)));
    if (mpi::is_floating(type_) || mpi::is_complex(type_)) {
      std::uniform_real_distribution<float> real(-2, 2);
      const std::int64_t numbers = mpi::is_complex(type_) ? 2 * count : count;
      const std::int64_t size = mpi::is_complex(type_) ? mpi::size_of(type_) / 2 : mpi::size_of(type_);
      for (std::int64_t i = 0; i < numbers; ++i) put(real(values), bytes.data() + i * size, size);
    } else {
      for (auto& byte : bytes) byte = static_cast<std::byte>(values() & (type_ == Datatype::kBool ? 1 : 0xff));
    }
    return bytes;
  }
  void put(float value, std::byte* to, std::int64_t size) const {
    const double wide = value;
    if (size == 8) return static_cast<void>(std::memcpy(to, &wide, sizeof wide));
    if (size == 4) return static_cast<void>(std::memcpy(to, &value, sizeof value));
    mpi::narrow(&value, 1, type_, to);
  }

  [[nodiscard]] Bytes reduced(std::int64_t count) const {
    std::vector<Bytes> inputs;
    std::vector<const void*> sources;
    for (int rank = 0; rank < comm_.size(); ++rank) inputs.push_back(input(rank, count));
    for (const Bytes& bytes : inputs) sources.push_back(bytes.data());
    Bytes out(static_cast<std::size_t>(count * mpi::size_of(type_)));
    reduce_in_order(sources, out.data(), count, type_, op_);
    return out;
  }
  [[nodiscard]] Bytes piece(const Bytes& whole, const Counts& counts, int rank) const {
    const auto size = mpi::size_of(type_);
    const auto first = mpi::total_of(std::span(counts).first(static_cast<std::size_t>(rank))) * size;
    const auto begin = whole.begin() + first;
    return {begin, begin + counts[static_cast<std::size_t>(rank)] * size};
  }
  [[nodiscard]] Bytes blank(std::int64_t count) const {
    return Bytes(static_cast<std::size_t>(count * mpi::size_of(type_)), std::byte{0xa5});
  }
  void expect(const Bytes& got, const Bytes& wanted, const char* name) const {
    EXPECT_TRUE(got == wanted) << name << " number " << number_ << " of " << wanted.size() << " bytes of "
                               << mpi::name_of(type_) << " with " << mpi::name_of(op_) << " and root " << root_;
  }

  void all_reduce() {
    const std::int64_t count = draw_count();
    const bool in_place = below(2) == 0;
    const Bytes wanted = reduced(count);
    Bytes in = input(comm_.rank(), count);
    Bytes out = blank(count);
    node::all_reduce(in.data(), in_place ? in.data() : out.data(), count, type_, op_, comm_,
                     {"all_reduce", communicator_});
    expect(in_place ? in : out, wanted, "all_reduce");
  }
  void reduce() {
    const std::int64_t count = draw_count();
    const bool in_place = below(2) == 0;
    const Bytes wanted = reduced(count);
    Bytes in = input(comm_.rank(), count);
    Bytes out = blank(count);
    const bool is_root = comm_.rank() == root_;
    void* target = !is_root ? nullptr : in_place ? in.data() : out.data();
    node::reduce(in.data(), target, count, type_, op_, root_, comm_, {"reduce", communicator_});
    if (is_root) expect(in_place ? in : out, wanted, "reduce");
  }
  void reduce_scatter() {
    const Counts counts = draw_counts();
    const std::int64_t total = mpi::total_of(counts);
    const Bytes wanted = piece(reduced(total), counts, comm_.rank());
    const Bytes in = input(comm_.rank(), total);
    Bytes out = blank(counts[static_cast<std::size_t>(comm_.rank())]);
    node::reduce_scatter(in.data(), out.data(), counts, type_, op_, comm_, {"reduce_scatter", communicator_});
    expect(out, wanted, "reduce_scatter");
    expect(in, input(comm_.rank(), total), "the input of reduce_scatter");
  }
  void broadcast() {
    const std::int64_t count = draw_count();
    Bytes data = comm_.rank() == root_ ? input(root_, count) : blank(count);
    node::broadcast(data.data(), count, type_, root_, comm_, {"broadcast", communicator_});
    expect(data, input(root_, count), "broadcast");
  }
  [[nodiscard]] Bytes gathered(const Counts& counts) const {
    Bytes whole;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      const Bytes part = input(rank, counts[static_cast<std::size_t>(rank)]);
      whole.insert(whole.end(), part.begin(), part.end());
    }
    return whole;
  }
  void all_gather() {
    const Counts counts = draw_counts();
    const Bytes in = input(comm_.rank(), counts[static_cast<std::size_t>(comm_.rank())]);
    Bytes out = blank(mpi::total_of(counts));
    node::all_gather(in.data(), out.data(), counts, type_, comm_, {"all_gather", communicator_});
    expect(out, gathered(counts), "all_gather");
  }
  void gather() {
    const Counts counts = draw_counts();
    const Bytes in = input(comm_.rank(), counts[static_cast<std::size_t>(comm_.rank())]);
    const bool is_root = comm_.rank() == root_;
    Bytes out = blank(is_root ? mpi::total_of(counts) : 0);
    node::gather(in.data(), is_root ? out.data() : nullptr, counts, type_, root_, comm_, {"gather", communicator_});
    if (is_root) expect(out, gathered(counts), "gather");
  }
  void scatter() {
    const Counts counts = draw_counts();
    const Bytes whole = input(root_, mpi::total_of(counts));
    Bytes out = blank(counts[static_cast<std::size_t>(comm_.rank())]);
    node::scatter(comm_.rank() == root_ ? whole.data() : nullptr, out.data(), counts, type_, root_, comm_,
                  {"scatter", communicator_});
    expect(out, piece(whole, counts, comm_.rank()), "scatter");
  }
  void all_to_all() {
    std::vector<Counts> sent;  // by sender
    for (int rank = 0; rank < comm_.size(); ++rank) sent.push_back(draw_counts());
    const auto me = static_cast<std::size_t>(comm_.rank());
    Counts received;
    Bytes wanted;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      const Counts& counts = sent[static_cast<std::size_t>(rank)];
      received.push_back(counts[me]);
      const Bytes part = piece(input(rank, mpi::total_of(counts)), counts, comm_.rank());
      wanted.insert(wanted.end(), part.begin(), part.end());
    }
    const Bytes in = input(comm_.rank(), mpi::total_of(sent[me]));
    Bytes out = blank(mpi::total_of(received));
    node::all_to_all(in.data(), sent[me], out.data(), received, type_, comm_, {"all_to_all", communicator_});
    expect(out, wanted, "all_to_all");
  }

  mpi::CommView comm_;
  std::mt19937_64 random_;
  std::int64_t largest_;
  mpi::Communicator* communicator_;
  std::int64_t number_ = 0;
  int root_ = 0;
  Datatype type_ = Datatype::kFloat32;
  ReduceOp op_ = ReduceOp::kSum;
};

}  // namespace weft::node
