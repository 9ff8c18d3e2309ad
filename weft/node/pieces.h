// Pieces of a packed buffer, one per rank.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "weft/mpi/chunks.h"
#include "weft/mpi/datatype.h"

namespace weft::node {

// `Pointer` is void* or const void*. All pieces of a null buffer are null.
template <class Pointer>
struct Pieces {
  std::vector<Pointer> data;
  std::vector<std::int64_t> bytes;

  Pieces(Pointer packed, std::span<const std::int64_t> counts, mpi::Datatype type) {
    std::int64_t first = 0;
    for (const std::int64_t count : counts) {
      data.push_back(packed == nullptr ? packed : mpi::at(packed, first, mpi::size_of(type)));
      bytes.push_back(count * mpi::size_of(type));
      first += count;
    }
  }
};

}  // namespace weft::node
