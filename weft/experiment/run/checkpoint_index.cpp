#include "weft/experiment/run/checkpoint_index.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "weft/experiment/training/checkpoint_error.h"
#include "weft/files/atomic_file.h"
#include "weft/files/checksum.h"
#include "weft/files/safetensors.h"

namespace weft::experiment {
namespace {

using Json = nlohmann::json;
using Sizes = std::vector<std::int64_t>;
namespace fs = std::filesystem;

constexpr const char* kFormat = "weft-checkpoint";
constexpr int kVersion = 1;
constexpr const char* kOwnChecksum = "index_checksum";
constexpr std::size_t kChecksumDigits = 16;

std::string joined(const Sizes& sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text.append(text.empty() ? "" : ",").append(std::to_string(size));
  return text;
}

Sizes sizes_from(const std::string& text, const fs::path& file) {
  Sizes sizes;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (at < end) {
    std::int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc())
      throw CheckpointError("weft: " + file.string() + " is damaged: invalid sizes '" + text + "'");
    sizes.push_back(size);
    at = next + 1;
  }
  return sizes;
}

partition::Box box_of(const Sizes& begin, const Sizes& shape) {
  partition::Box box;
  for (std::size_t i = 0; i < begin.size() && i < shape.size(); ++i) {
    std::int64_t end = 0;
    if (__builtin_add_overflow(begin[i], shape[i], &end)) end = -1;  // outside of any tensor
    box.ranges.push_back({begin[i], end});
  }
  return box;
}

Sizes begin_of(const partition::Box& box) {
  Sizes begin;
  for (const auto& range : box.ranges) begin.push_back(range.begin);
  return begin;
}

struct Described {
  Sizes whole;
  partition::Box box;
  std::string checksum;
};

Described parse_piece(const std::string& text, const fs::path& file) {
  std::istringstream parts(text);
  std::string whole;
  std::string begin;
  std::string shape;
  std::getline(parts, whole, '/');
  std::getline(parts, begin, '/');
  std::string checksum;
  std::getline(parts, shape, '/');
  std::getline(parts, checksum, '/');
  return {sizes_from(whole, file), box_of(sizes_from(begin, file), sizes_from(shape, file)), checksum};
}

// Checks that pieces lie inside of the tensor, do not overlap, and cover it.
void require_covered(const std::string& name, const IndexedTensor& tensor, const fs::path& folder) {
  const auto whole = partition::Box::whole(tensor.shape);
  std::int64_t cells = 0;
  for (const Piece& piece : tensor.pieces) {
    bool inside = piece.box.dims() == whole.dims();
    for (std::size_t i = 0; inside && i < whole.dims(); ++i) {
      const partition::Range& range = piece.box.ranges[i];
      inside = range.begin >= 0 && range.begin <= range.end && range.end <= whole.ranges[i].end;
    }
    // Files outside of the folder are never read.
    const bool plain_name = fs::path(piece.file).filename() == piece.file;
    const bool apart = std::none_of(tensor.pieces.data(), &piece, [&](const Piece& other) {
      return inside && !other.box.intersect(piece.box).empty();
    });
    if (!inside || !apart || !plain_name)
      throw CheckpointError("weft: checkpoint " + folder.string() + " is damaged: pieces of '" + name +
                            "' overlap, lie outside of the tensor, or name a file in another folder");
    cells += piece.box.volume();
  }
  if (cells == whole.volume()) return;
  throw CheckpointError("weft: checkpoint " + folder.string() + " is incomplete: it has " + std::to_string(cells) +
                        " of " + std::to_string(whole.volume()) + " values of tensor '" + name + "'");
}

Json json_of(const IndexedTensor& tensor) {
  Json pieces = Json::array();
  for (const Piece& piece : tensor.pieces) {
    pieces.push_back({{"file", piece.file},
                      {"offset", begin_of(piece.box)},
                      {"shape", piece.box.sizes()},
                      {"checksum", piece.checksum}});
  }
  return {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"pieces", pieces}};
}

IndexedTensor tensor_from(const Json& json) {
  IndexedTensor tensor{json.at("dtype"), json.at("shape"), {}};
  for (const Json& piece : json.at("pieces")) {
    tensor.pieces.push_back(
        {piece.at("file"), box_of(piece.at("offset"), piece.at("shape")), piece.value("checksum", "")});
  }
  return tensor;
}

Json json_of(const IndexedStage& stage) {
  return {{"kind", stage.kind}, {"layer", stage.layer}, {"epochs", stage.epochs}};
}

std::vector<IndexedStage> stages_from(const Json& list) {
  std::vector<IndexedStage> stages;
  for (const Json& stage : list) stages.push_back({stage.at("kind"), stage.at("layer"), stage.at("epochs")});
  return stages;
}

// The index contains the checksum of its own text, computed with zeros in place of the digits. Returns their position.
std::optional<std::size_t> own_checksum(const std::string& text) {
  const std::string key = std::string("\"") + kOwnChecksum + "\": \"";
  const auto found = text.rfind(key);
  return found == std::string::npos ? std::nullopt : std::optional(found + key.size());
}

std::string with_own_checksum(std::string text) {
  const std::size_t at = own_checksum(text).value();
  text.replace(at, kChecksumDigits, kChecksumDigits, '0');
  return text.replace(at, kChecksumDigits, files::checksum_text(text.data(), text.size()));
}

[[noreturn]] void throw_damaged(const fs::path& folder, const std::string& problem) {
  throw CheckpointError("weft: the index of checkpoint " + folder.string() + " is damaged: " + problem + kDamageAdvice);
}

// Returns whether the index contains its own checksum. Older checkpoints have no checksums.
bool has_own_checksum(const std::string& text, const fs::path& folder) {
  const auto at = own_checksum(text);
  if (!at) return false;
  if (*at + kChecksumDigits > text.size() || with_own_checksum(text) != text)
    throw_damaged(folder, "its checksum differs");
  return true;
}

bool has_checksums(const CheckpointIndex& index) {
  return std::any_of(index.tensors.begin(), index.tensors.end(), [](const auto& entry) {
    return std::any_of(entry.second.pieces.begin(), entry.second.pieces.end(),
                       [](const Piece& piece) { return !piece.checksum.empty(); });
  });
}

}  // namespace

std::string describe_piece(const Sizes& whole, const partition::Box& box, const std::string& checksum) {
  return joined(whole) + "/" + joined(begin_of(box)) + "/" + joined(box.sizes()) + "/" + checksum;
}

CheckpointIndex index_of_shards(const fs::path& folder) {
  CheckpointIndex index;
  std::vector<fs::path> shards;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
  }
  std::sort(shards.begin(), shards.end());
  for (const fs::path& path : shards) {
    const files::SafetensorsFile file(path);
    for (const auto& [name, info] : file.tensors()) {
      const auto text = file.metadata().find(name);
      if (text == file.metadata().end())
        throw CheckpointError("weft: " + path.string() + " has no metadata for tensor '" + name + "'");
      const Described piece = parse_piece(text->second, path);
      IndexedTensor& tensor = index.tensors[name];
      tensor.dtype = info.dtype;
      tensor.shape = piece.whole;
      tensor.pieces.push_back({path.filename().string(), piece.box, piece.checksum});
    }
  }
  for (const auto& [name, tensor] : index.tensors) require_covered(name, tensor, folder);
  return index;
}

void write_index(const fs::path& folder, const CheckpointIndex& index) {
  Json tensors = Json::object();
  for (const auto& [name, tensor] : index.tensors) tensors[name] = json_of(tensor);
  Json json{{"format", kFormat},    {"version", kVersion},      {"experiment", index.experiment},
            {"ranks", index.ranks}, {"numbers", index.numbers}, {"tensors", tensors}};
  if (!index.data.empty()) json["data"] = index.data;
  for (const IndexedStage& stage : index.stages) json["stages"].push_back(json_of(stage));
  json[kOwnChecksum] = std::string(kChecksumDigits, '0');
  files::write_atomically(folder / kIndexFile, with_own_checksum(json.dump(1) + "\n"));
}

CheckpointIndex read_index(const fs::path& folder) {
  std::ifstream stream(folder / kIndexFile, std::ios::binary);
  if (!stream) throw CheckpointError("weft: " + folder.string() + " is not a checkpoint: it has no " + kIndexFile);
  try {
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    const bool verified = has_own_checksum(text, folder);
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat || json.at("version") != kVersion) {
      throw CheckpointError("weft: " + folder.string() + " has an unknown format; this version reads " + kFormat + " " +
                            std::to_string(kVersion));
    }
    CheckpointIndex index{.experiment = json.at("experiment"), .ranks = json.at("ranks")};
    index.stages = stages_from(json.value("stages", Json::array()));
    index.data = json.value("data", index.data);
    for (const auto& [name, number] : json.at("numbers").items()) {
      // JSON has no NaN. The cost of a diverged run is stored as null.
      index.numbers[name] = number.is_null() ? std::numeric_limits<double>::quiet_NaN() : number.get<double>();
    }
    for (const auto& [name, tensor] : json.at("tensors").items()) {
      index.tensors[name] = tensor_from(tensor);
      require_covered(name, index.tensors[name], folder);
    }
    if (!verified && has_checksums(index)) throw_damaged(folder, "its own checksum is missing");
    return index;
  } catch (const Json::exception& error) {
    throw_damaged(folder, error.what());
  }
}

}  // namespace weft::experiment
