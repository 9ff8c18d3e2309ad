// What a checkpoint's folder holds: the tensors with the pieces they were cut into, and where training was. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/partition/box.h"

namespace weft::experiment {

// A box of a tensor, in a file of the folder, under the tensor's name.
struct Piece {
  std::string file;
  partition::Box box;
};

struct IndexedTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<Piece> pieces;
};

// A part of training; see Stage.
struct IndexedStage {
  std::string kind;
  std::int64_t layer = 0;
  std::int64_t epochs = 0;
};

struct CheckpointIndex {
  std::string experiment{};
  std::int64_t ranks = 1;
  std::map<std::string, double> numbers{};  // where training was; whole numbers up to 2^53 are exact
  std::map<std::string, IndexedTensor> tensors{};
  // What the run had when it was written; empty in older checkpoints.
  std::vector<IndexedStage> stages{};
  std::map<std::string, std::string> data{};  // the images, by what tells them from others
};

constexpr const char* kIndexFile = "index.json";

// From the headers of the folder's shards, whose metadata tells each tensor's whole shape and box. Throws
// CheckpointError where shards do not fit each other.
[[nodiscard]] CheckpointIndex index_of_shards(const std::filesystem::path& folder);
void write_index(const std::filesystem::path& folder, const CheckpointIndex& index);
// Throws CheckpointError for an index that is absent, damaged, or names boxes that do not cover a tensor.
[[nodiscard]] CheckpointIndex read_index(const std::filesystem::path& folder);

// "4,3/0,2/4,1": whole shape, where the piece begins, its shape.
[[nodiscard]] std::string describe_piece(const std::vector<std::int64_t>& whole, const partition::Box& box);

}  // namespace weft::experiment
