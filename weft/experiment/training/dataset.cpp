#include "weft/experiment/training/dataset.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <system_error>

#include "weft/data/cache.h"
#include "weft/data/file.h"
#include "weft/data/known_sets.h"
#include "weft/data/synthetic.h"
#include "weft/experiment/file/description.h"
#include "weft/experiment/file/problems.h"
#include "weft/experiment/file/sizes.h"
#include "weft/files/checksum.h"

namespace weft::experiment {
namespace {

using Log = std::function<void(const std::string&)>;

// Limits another source to its first images.
class FirstImages final : public data::ImageSource {
 public:
  FirstImages(std::unique_ptr<data::ImageSource> all, std::int64_t count) : all_(std::move(all)), set_(all_->set()) {
    set_.count = std::min(set_.count, count);
  }
  [[nodiscard]] const data::ImageSet& set() const override { return set_; }
  std::int64_t read(std::span<std::uint8_t> pixels) override { return all_->read(pixels); }

 private:
  std::unique_ptr<data::ImageSource> all_;
  data::ImageSet set_;
};

data::ImageOrigin limited(data::ImageOrigin origin, const std::optional<std::int64_t>& count) {
  if (!count) return origin;
  origin.name += " first " + std::to_string(*count);
  origin.open = [open = origin.open, count = *count] { return std::make_unique<FirstImages>(open(), count); };
  return origin;
}

data::KnownSet synthetic(const DatasetSpec& spec, std::uint64_t seed) {
  data::SyntheticOptions options;
  options.picture = data::parse_picture(spec.kind);
  options.count = spec.images;
  options.channels = spec.maps;
  options.height = spec.shape[0];
  options.width = spec.shape[1];
  options.classes = spec.classes;
  options.seed = seed;
  data::SyntheticOptions later = options;
  later.first = options.count;
  later.count = spec.test_images.value_or(std::max<std::int64_t>(1, spec.images / 4));
  return {data::synthetic_origin(options, "train"), data::synthetic_origin(later, "test"), {}};
}

data::KnownSet known_set(const DatasetSpec& spec, const std::optional<std::filesystem::path>& folder) {
  return spec.kind == "cifar10" ? data::cifar10_set(folder) : data::mnist_set(folder);
}

struct Found {
  data::KnownSet set;
  bool in_configured_folder = true;
};

// Searches the default folders. Errors also include the failure in the configured folder.
data::KnownSet find_in_default_folders(const DatasetSpec& spec, const std::string& first_error) {
  try {
    return known_set(spec, std::nullopt);
  } catch (const data::DataError& error) {
    throw data::DataError(first_error + "\n" + error.what());
  }
}

Found find_set(const Experiment& experiment, const Log& log) {
  const DatasetSpec& spec = experiment.dataset;
  if (spec.made_up()) return {synthetic(spec, experiment.seed)};
  if (spec.folder.empty()) return {known_set(spec, std::nullopt)};
  std::string error_text;
  try {
    return {known_set(spec, spec.folder)};
  } catch (const data::DataError& error) {
    if (!spec.folder_may_be_absent) throw;
    error_text = error.what();
  }
  Found found{find_in_default_folders(spec, error_text), false};
  log("no " + spec.kind + " in " + spec.folder.string() + "; using " +
      found.set.train.files.front().parent_path().string() + " instead");
  return found;
}

std::string expanded(const std::string& path) {
  const char* home = std::getenv("HOME");
  return home != nullptr && path.starts_with("~/") ? home + path.substr(1) : path;
}

data::PartOptions part_options(const Experiment& experiment, const RankPlan& plan, std::int64_t rank) {
  data::PartOptions options;
  options.split = data::Split(plan.shards, partition::Grid(plan.tiles));
  options.rank = plan.copies > 1 ? 0 : rank;
  options.order.size = experiment.model.batch_size;
  options.order.seed = experiment.seed;
  options.order.shuffle = experiment.dataset.shuffle;
  // weft/data expects a percentage, or a fraction below 1.
  options.sample_pct = experiment.dataset.sample < 1 ? experiment.dataset.sample : 100;
  options.sample_seed = experiment.seed;
  return options;
}

std::string place_of(const data::ImageOrigin& origin) {
  return origin.files.empty() ? origin.name : data::quoted(origin.files.front());
}

// Without this check, images of the wrong size would fail in the first step, after the run folder was created.
void require_extent(const data::ImageSet& set, const DatasetSpec& spec, const data::ImageOrigin& origin) {
  const Extent wanted = image_extent(spec);
  const Extent got{set.channels, {set.height, set.width}};
  if (got == wanted) return;
  throw data::DataError("weft: images in " + place_of(origin) + " have the wrong size: expected " + wanted.describe() +
                        ", got " + got.describe());
}

data::ImagePart loaded(const data::ImageOrigin& origin, const DatasetSpec& spec, const data::PartOptions& options,
                       const data::CacheOptions& cache) {
  data::ImageOrigin checked = origin;
  checked.open = [&] {
    auto source = origin.open();
    require_extent(source->set(), spec, origin);
    return source;
  };
  data::ImagePart part = data::load_part(checked, options, cache);
  require_extent(part.whole, spec, origin);  // the part may come from a cache
  // The error of an empty set would be 0.
  if (part.whole.count == 0) {
    throw data::DataError("weft: " + place_of(origin) + " contains no images to " + origin.portion + " with");
  }
  return part;
}

void require_batch_size(const data::ImagePart& part, const Experiment& experiment) {
  const std::int64_t size = experiment.model.batch_size;
  if (size <= part.whole.count) return;
  throw ExperimentError(located(experiment.file, experiment.model.place,
                                "the batch size is " + std::to_string(size) + ", but there are only " +
                                    std::to_string(part.whole.count) + " training images; choose a smaller batch_size" +
                                    (experiment.dataset.sample < 1 ? " or a larger sample" : "")));
}

// Identifies a file by name, size and a checksum of its first 64 KiB: other sets have files of the same size.
std::string file_text(const std::filesystem::path& file) {
  std::vector<char> head(std::size_t{1} << 16);
  std::ifstream stream(file, std::ios::binary);
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  std::error_code ignored;
  return file.filename().string() + " (" + std::to_string(std::filesystem::file_size(file, ignored)) + " bytes, xxh3 " +
         files::checksum_text(head.data(), static_cast<std::size_t>(stream.gcount())) + ")";
}

std::map<std::string, std::string> describe(const DatasetSpec& spec, const data::ImageOrigin& train) {
  std::string source = train.name;
  for (const auto& file : train.files) source += " " + file_text(file);
  char sample[32];
  std::snprintf(sample, sizeof sample, "%.15g", spec.sample);
  return {{"set", spec.kind}, {"sample", sample}, {"source", source}};
}

}  // namespace

Dataset open_dataset(const Experiment& experiment, const RankPlan& plan, std::int64_t rank, const Log& log) {
  const Found found = find_set(experiment, log);
  for (const std::string& note : found.set.notes) log(note);
  data::CacheOptions cache;
  // Each rank has its own cache file and reports about it.
  cache.say = rank == 0 ? log : [rank](const std::string& line) {
    std::fprintf(stderr, "weft: rank %ld: %s\n", static_cast<long>(rank), line.c_str());
  };
  // The cache belongs to the configured folder, not to data from another one.
  if (found.in_configured_folder && plan.copies == 1) cache.path = expanded(experiment.dataset.cache);
  data::PartOptions options = part_options(experiment, plan, rank);
  const data::LoaderOptions loading{.prefetch = experiment.dataset.prefetch,
                                    .type = experiment.float64 ? at::kDouble : at::kFloat};
  Dataset dataset;
  if (!found.set.train.files.empty()) dataset.folder = found.set.train.files.front().parent_path();
  if (rank == 0) dataset.description = describe(experiment.dataset, found.set.train);
  data::ImagePart train = loaded(found.set.train, experiment.dataset, options, cache);
  require_batch_size(train, experiment);
  dataset.train = std::make_unique<data::Loader>(std::move(train), options, loading);
  options.order.shuffle = false;
  options.sample_pct = 100;
  const auto test = limited(found.set.test, experiment.dataset.test_images);
  dataset.test = std::make_unique<data::Loader>(loaded(test, experiment.dataset, options, cache), options, loading);
  return dataset;
}

}  // namespace weft::experiment
