// The weft command. train and check run in this process; the other commands are Python modules.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/weft/launch.h"
#include "apps/weft/train.h"
#include "weft/experiment/file/load.h"
#include "weft/experiment/file/problems.h"
#include "weft/experiment/run/check.h"
#include "weft/text/spelling.h"

namespace {

using weft::kWrongInput;
using weft::experiment::RunOptions;

int check(const RunOptions& options, int ranks) {
  try {
    const auto experiment = weft::experiment::load_experiment(options.file, options.overrides);
    for (const std::string& note : experiment.notes) std::fprintf(stderr, "%s\n", note.c_str());
    std::fputs(weft::experiment::check_report(experiment, ranks).c_str(), stdout);
    return EXIT_SUCCESS;
  } catch (const weft::experiment::ExperimentError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kWrongInput;
  }
}

// Runs a subcommand that is written in Python: `weft sml-demo` is `python -m weft.tools.sml_demo`.
int python(std::string name, const std::vector<std::string>& arguments) {
  std::replace(name.begin(), name.end(), '-', '_');
  std::vector<std::string> command{weft::command::find_python().string(), "-m", "weft.tools." + name};
  command.insert(command.end(), arguments.begin(), arguments.end());
  weft::command::exec_program(command);
  std::fprintf(stderr, "weft: cannot start Python; set WEFT_PYTHON to an interpreter that has weft installed\n");
  return EXIT_FAILURE;
}

// CLI11 reports an unknown command only as a missing one.
bool known_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return true;
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), argv[1]) != names.end()) return true;
  std::fprintf(stderr, "weft: unknown command '%s'%s\nThe commands are %s. See weft --help.\n", argv[1],
               weft::text::suggestion(argv[1], names).c_str(), weft::text::listed(names).c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Train PyTorch networks in parallel over MPI. YAML files describe the experiments.", "weft"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "weft " WEFT_VERSION);
  app.footer(
      "Examples:\n"
      "  weft check experiment.yaml -n 4      validate a file and show how 4 ranks share the network\n"
      "  weft train experiment.yaml -n 4      train on 4 ranks and write the results to runs/\n"
      "  weft train experiment.yaml --resume  continue the last run from its latest checkpoint\n"
      "  weft report runs/experiment          create a web page with curves and tables\n"
      "\n`weft COMMAND --help` describes the options of a command.");
  RunOptions options;
  std::optional<int> ranks;

  auto* train_command = app.add_subcommand("train", "Train the network of an experiment");
  auto* check_command = app.add_subcommand("check", "Validate an experiment and show how ranks share it");
  for (auto* command : {train_command, check_command}) {
    command->add_option("file", options.file, "Experiment file (YAML)")->required()->option_text("FILE");
    command->add_option("-n", ranks, "Number of ranks (default: 1)")->check(CLI::Range(1, 1'000'000))->option_text("N");
    command->add_option("--set", options.overrides, "Override a value of the file, such as model.epochs=5; repeatable")
        ->allow_extra_args(false)
        ->option_text("KEY=VALUE");
  }
  train_command->add_option("--out", options.out, "Folder of the run (default: a new folder in runs/)")
      ->check([](const std::string& folder) { return folder.empty() ? "the folder must not be empty" : ""; })
      ->option_text("FOLDER");
  train_command
      ->add_option("--threads", options.threads, "Threads of each rank (default: the cores divided by the ranks)")
      ->check(CLI::Range(1, 4096))
      ->option_text("T");
  train_command->add_flag("--resume", options.resume, "Continue from the latest checkpoint in the run folder");
  train_command->footer(
      "Examples:\n"
      "  weft train mnist.yaml -n 4 --out runs/first\n"
      "  weft train mnist.yaml --set model.epochs=20 --set model.optimizer.rate=0.01\n"
      "  weft train mnist.yaml -n 2 --out runs/first --resume\n"
      "\nCtrl-C stops after the current step and saves a checkpoint.");
  check_command->footer("Example:\n  weft check mnist.yaml -n 4 --set split=batch");

  const std::vector<std::pair<std::string, std::string>> modules{
      {"doctor", "Show the installed versions and report problems"},
      {"report", "Create a web page of a run: curves, tables, pictures"},
      {"compare", "Compare the curves and parameters of two runs"},
      {"plan", "Predict the training time of a network on many ranks"},
      {"tensorboard", "Export the metrics of a run to TensorBoard"},
      {"sml-demo", "Demonstrate training with sums computed by a software switch"}};
  for (const auto& [name, summary] : modules) app.add_subcommand(name, summary)->prefix_command()->set_help_flag();

  if (!known_command(app, argc, argv)) return kWrongInput;
  if (const auto status = weft::parse(app, argc, argv)) return *status;
  if (*train_command) return weft::command::train(options, ranks, argc, argv);
  if (*check_command) return check(options, ranks.value_or(1));
  for (const auto& [name, summary] : modules) {
    if (app.got_subcommand(name)) return python(name, app.get_subcommand(name)->remaining());
  }
  return EXIT_FAILURE;
}
