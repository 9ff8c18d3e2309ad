// The index of a checkpoint (index.json): its tensors, their pieces and files, and the position in training. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/partition/box.h"

namespace weft::experiment {

// A box of a tensor. The file stores it under the tensor's name.
struct Piece {
  std::string file;
  partition::Box box;
  std::string checksum{};  // files::checksum_text() of the values; empty in older checkpoints
};

struct IndexedTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<Piece> pieces;
};

// A stage of training; see Stage.
struct IndexedStage {
  std::string kind;
  std::int64_t layer = 0;
  std::int64_t epochs = 0;
};

struct CheckpointIndex {
  std::string experiment{};
  std::int64_t ranks = 1;
  std::map<std::string, double> numbers{};  // progress, seed, batch size; integers up to 2^53 are exact
  std::map<std::string, IndexedTensor> tensors{};
  // Facts that a resumed run must match; empty in older checkpoints.
  std::vector<IndexedStage> stages{};
  std::map<std::string, std::string> data{};  // Dataset::description
};

constexpr const char* kIndexFile = "index.json";

// Builds the index from the headers of the folder's shards, whose metadata contains the global shape and box of each
// tensor. Throws CheckpointError if the shards do not cover a tensor exactly.
[[nodiscard]] CheckpointIndex index_of_shards(const std::filesystem::path& folder);
void write_index(const std::filesystem::path& folder, const CheckpointIndex& index);
// Throws CheckpointError if the index is missing or damaged, or if its boxes do not cover a tensor exactly.
[[nodiscard]] CheckpointIndex read_index(const std::filesystem::path& folder);

// Returns "4,3/0,2/4,1/<checksum>": global shape, offset, shape and checksum of a piece.
[[nodiscard]] std::string describe_piece(const std::vector<std::int64_t>& whole, const partition::Box& box,
                                         const std::string& checksum);

}  // namespace weft::experiment
