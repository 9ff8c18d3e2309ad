#include "weft/experiment/run/checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <string_view>
#include <utility>

#include "weft/experiment/run/collective_work.h"
#include "weft/experiment/training/checkpoint_error.h"
#include "weft/files/checksum.h"
#include "weft/files/error.h"
#include "weft/files/safetensors.h"

namespace weft::experiment {
namespace {

namespace fs = std::filesystem;
using at::Tensor;

constexpr std::size_t kKept = 2;  // number of complete checkpoints that a run keeps
constexpr const char* kPrefix = "step-";

std::string dtype_name(const Tensor& tensor) { return tensor.scalar_type() == at::kDouble ? "F64" : "F32"; }

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

fs::path folder_of(const fs::path& run) { return run / "checkpoints"; }

std::string name_of(std::int64_t step) {
  std::string number = std::to_string(step);
  return kPrefix + std::string(number.size() < 8 ? 8 - number.size() : 0, '0') + number;
}

// Only one rank writes a part that several ranks hold: rank 0 for replicated parameters, otherwise the first group.
bool writes(const Parameter& parameter, const Mesh& mesh) {
  const std::int64_t rank = mesh.world()->rank();
  if (parameter.only_here) return true;
  if (is_whole(parameter)) return rank == 0;
  return rank < mesh.plan().tiles[0] * mesh.plan().tiles[1];
}

void write_shard(const fs::path& folder, const std::vector<Parameter>& state, const Mesh& mesh) {
  std::vector<Tensor> kept;  // keeps the contiguous tensors alive
  std::vector<files::TensorBytes> tensors;
  files::Metadata places;
  for (const Parameter& parameter : state) {
    if (!writes(parameter, mesh) || parameter.value.numel() == 0) continue;
    kept.push_back(parameter.value.detach().contiguous());
    tensors.push_back(
        {parameter.name, dtype_name(kept.back()), kept.back().sizes().vec(), kept.back().const_data_ptr()});
    places[parameter.name] = describe_piece(parameter.whole, parameter.part,
                                            files::checksum_text(kept.back().const_data_ptr(), kept.back().nbytes()));
  }
  const std::string name =
      "shard-" + std::to_string(mesh.world()->rank()) + "-of-" + std::to_string(mesh.world()->size()) + ".safetensors";
  files::write_safetensors(folder / name, tensors, places);
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) files::throw_errno("open", folder);
  const int failed = ::fsync(descriptor);
  ::close(descriptor);
  if (failed != 0) files::throw_errno("sync", folder);
}

// Returns the number of a folder name step-<number>.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* const end = name.data() + name.size();
  std::int64_t step = -1;
  const auto parsed = std::from_chars(name.data() + std::string_view(kPrefix).size(), end, step);
  return parsed.ec == std::errc() && parsed.ptr == end && step >= 0 ? std::optional(step) : std::nullopt;
}

// Returns the checkpoints that have an index, latest first.
std::vector<fs::path> complete_checkpoints(const fs::path& run) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_of(run), ignored)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && fs::exists(entry.path() / kIndexFile, ignored)) found.emplace_back(*step, entry.path());
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<fs::path> result;
  for (auto& [step, path] : found) result.push_back(std::move(path));
  return result;
}

void publish(const fs::path& run, const fs::path& partial, std::int64_t step, CheckpointIndex index) {
  index.tensors = index_of_shards(partial).tensors;
  write_index(partial, index);
  sync_folder(partial);
  fs::rename(partial, folder_of(run) / name_of(step));
  sync_folder(folder_of(run));
  const auto all = complete_checkpoints(run);
  for (std::size_t i = kKept; i < all.size(); ++i) fs::remove_all(all[i]);
}

void require_checksum(const Piece& piece, const std::string& tensor, const Tensor& values, const fs::path& folder) {
  if (piece.checksum.empty()) return;  // of an older checkpoint
  if (files::checksum_text(values.const_data_ptr(), values.nbytes()) == piece.checksum) return;
  throw CheckpointError("weft: checkpoint file " + (folder / piece.file).string() + " is damaged: the checksum of '" +
                        tensor + "' differs" + kDamageAdvice);
}

Tensor read_piece(const fs::path& folder, const std::string& name, const Piece& piece,
                  const at::TensorOptions& options) {
  Tensor stored = at::empty(piece.box.sizes(), options);
  try {
    files::SafetensorsFile(folder / piece.file)
        .read(name, stored.mutable_data_ptr(), static_cast<std::int64_t>(stored.nbytes()));
  } catch (const files::SafetensorsError& error) {
    throw CheckpointError(error.what() + std::string(kDamageAdvice));
  }
  require_checksum(piece, name, stored, folder);
  return stored;
}

// Reads a box of a tensor from the pieces that contain it.
Tensor assemble(const fs::path& folder, const std::string& name, const IndexedTensor& tensor, const partition::Box& box,
                const Tensor& like) {
  Tensor result = at::empty(box.sizes(), like.options().requires_grad(false));
  for (const Piece& piece : tensor.pieces) {
    const partition::Box shared = piece.box.intersect(box);
    if (shared.empty()) continue;
    const Tensor stored = read_piece(folder, name, piece, result.options());
    const auto relative = [&](const partition::Box& origin) {
      partition::Box moved = shared;
      for (std::size_t i = 0; i < moved.dims(); ++i) {
        moved.ranges[i].begin -= origin.ranges[i].begin;
        moved.ranges[i].end -= origin.ranges[i].begin;
      }
      return moved;
    };
    cut(result, relative(box)).copy_(cut(stored, relative(piece.box)));
  }
  return result;
}

const IndexedTensor& matching(const CheckpointIndex& index, const Parameter& parameter, const fs::path& folder) {
  const auto found = index.tensors.find(parameter.name);
  if (found == index.tensors.end()) {
    throw CheckpointError("weft: checkpoint " + folder.string() + " has no tensor '" + parameter.name +
                          "'; was it written by another experiment?");
  }
  const auto& [dtype, shape, pieces] = found->second;
  if (shape != parameter.whole || dtype != dtype_name(parameter.value)) {
    throw CheckpointError("weft: tensor '" + parameter.name + "' does not match: this experiment has " +
                          dtype_name(parameter.value) + " " + shape_text(parameter.whole) + ", checkpoint " +
                          folder.string() + " has " + dtype + " " + shape_text(shape) +
                          "; restore the layer, or start a new run with --out");
  }
  return found->second;
}

}  // namespace

void save_checkpoint(const fs::path& run, const std::vector<Parameter>& state, const CheckpointIndex& facts,
                     std::int64_t step, const Mesh& mesh) {
  const fs::path partial = folder_of(run) / ("." + name_of(step) + ".partial");
  const bool first = mesh.world()->rank() == 0;
  bool exists = false;
  run_on_all_ranks(mesh.world(), "checkpoint start", [&] {
    if (!first) return;
    exists = fs::exists(folder_of(run) / name_of(step) / kIndexFile);
    fs::remove_all(partial);
    fs::create_directories(partial);
  });
  run_on_all_ranks(mesh.world(), "checkpoint write", [&] { write_shard(partial, state, mesh); });
  run_on_all_ranks(mesh.world(), "checkpoint publish", [&] {
    if (!first) return;
    // A resumed run may reach a step that has a checkpoint already; both are equal.
    if (exists) fs::remove_all(partial);
    if (!exists) publish(run, partial, step, facts);
  });
}

std::optional<fs::path> latest_checkpoint(const fs::path& run) {
  const auto all = complete_checkpoints(run);
  return all.empty() ? std::nullopt : std::optional<fs::path>(all.front());
}

void load_checkpoint(const fs::path& folder, const CheckpointIndex& index, const std::vector<Parameter>& state) {
  const at::NoGradGuard no_grad;
  std::vector<Tensor> values;
  for (const Parameter& parameter : state) {
    values.push_back(
        assemble(folder, parameter.name, matching(index, parameter, folder), parameter.part, parameter.value));
  }
  for (std::size_t i = 0; i < state.size(); ++i) state[i].value.detach().copy_(values[i]);
}

}  // namespace weft::experiment
