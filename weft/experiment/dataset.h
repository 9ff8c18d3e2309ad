// The images of an experiment: this rank's part of them, in batches.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "weft/data/loader.h"
#include "weft/experiment/mesh.h"

namespace weft::experiment {

struct Dataset {
  std::unique_ptr<data::Loader> train;
  std::unique_ptr<data::Loader> test;
  std::filesystem::path folder{};  // where its files are; empty of one without files
  // What tells the training images from others, by name; not where their files are, which may move. Of the first rank
  // only: on another host the same images may be packed otherwise.
  std::map<std::string, std::string> description{};
};

// `say` gets what a user should know: a cache that was made again, a folder that is not there. Throws data::DataError,
// also for images of another size than the experiment's, and where there are none to train or to test with.
[[nodiscard]] Dataset open_dataset(const Experiment& experiment, const RankPlan& plan, std::int64_t rank,
                                   const std::function<void(const std::string&)>& say);

}  // namespace weft::experiment
