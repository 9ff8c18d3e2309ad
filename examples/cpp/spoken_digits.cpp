// Recognises spoken digits with a GRU whose sequences are split over the ranks.
//
//   mpirun -n 2 spoken_digits <folder with the recordings of FSDD> [--epochs 10] [--chunks 4] ...
//
// The data set is the Free Spoken Digit Dataset: 3,000 recordings of 6 speakers at 8 kHz. The network reads log-mel
// features, 100 frames per second. Each rank holds a piece of every sequence. Chunks of the batch travel through the
// ranks as a pipeline, so that the ranks compute at the same time.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "weft/data/batches.h"
#include "weft/time_parallel/gru.h"
#include "weft/weft.h"

namespace {

namespace fs = std::filesystem;
using torch::Tensor;

constexpr int kSamplesPerSecond = 8000;
constexpr int kWindow = 200;    // samples: 25 ms
constexpr int kHop = 80;        // samples: 10 ms
constexpr int kSpectrum = 256;  // samples of a Fourier transform
constexpr int kClasses = 10;
constexpr int kTestRecordings = 5;  // of each speaker and digit, as usual for this data set

// The command line options, as --name value.
using Settings = std::map<std::string, double>;

Settings parse(int argc, char** argv) {
  Settings settings{{"--hidden", 64}, {"--bands", 40}, {"--frames", 100}, {"--epochs", 10},
                    {"--batch", 50},  {"--chunks", 4}, {"--rate", 0.003}, {"--seed", 1}};
  for (int i = 2; i < argc; i += 2) {
    const auto setting = settings.find(argv[i]);
    char* end = nullptr;
    const double value = i + 1 < argc ? std::strtod(argv[i + 1], &end) : 0;
    if (setting == settings.end() || end == nullptr || *end != '\0' || value <= 0) {
      std::string names;
      for (const auto& [name, preset] : settings) names.append(" ").append(name);
      throw std::invalid_argument("expected options" + names + ", each with a number greater than 0, got " + argv[i]);
    }
    setting->second = value;
  }
  return settings;
}

// Triangular filters [bands, frequencies], spaced evenly on the mel scale.
Tensor mel_filters(int bands) {
  const double top = 2595 * std::log10(1 + kSamplesPerSecond / 2.0 / 700);
  const Tensor edges = 700 * (torch::pow(10, torch::linspace(0, top, bands + 2) / 2595) - 1);
  const Tensor frequencies = torch::linspace(0, kSamplesPerSecond / 2.0, kSpectrum / 2 + 1);
  const auto edge = [&](int from) { return edges.slice(0, from, from + bands).unsqueeze(1); };
  const Tensor left = edge(0);
  const Tensor centre = edge(1);
  const Tensor right = edge(2);
  return torch::minimum((frequencies - left) / (centre - left), (right - frequencies) / (right - centre)).clamp_min(0);
}

// Returns features [frames, bands] with mean 0 and variance 1.
Tensor log_mel(const Tensor& samples, const Tensor& filters) {
  const Tensor padded = torch::constant_pad_nd(samples, {0, std::max<std::int64_t>(0, kSpectrum - samples.numel())});
  const Tensor spectrum = torch::stft(padded, kSpectrum, kHop, kWindow, torch::hann_window(kWindow), /*center=*/false,
                                      "reflect", /*normalized=*/false, /*onesided=*/true, /*return_complex=*/true);
  const Tensor features = (filters.matmul(spectrum.abs().square()) + 1e-6).log().t();
  return (features - features.mean()) / features.std().clamp_min(1e-3);
}

// Returns the samples of a recording in [-1, 1]. Throws std::runtime_error unless it is mono with 16 bits and 8 kHz.
Tensor read_wave(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)), {});
  const auto number = [&](std::size_t at, auto value) {
    if (at + sizeof value > content.size()) throw std::runtime_error(path.string() + " is truncated");
    std::memcpy(&value, content.data() + at, sizeof value);
    return value;
  };
  if (content.compare(0, 4, "RIFF") != 0 || content.compare(8, 4, "WAVE") != 0) {
    throw std::runtime_error(path.string() + " is not a WAVE file");
  }
  for (std::size_t chunk = 12; chunk + 8 <= content.size();) {
    const std::size_t size = number(chunk + 4, std::uint32_t{});
    if (content.compare(chunk, 4, "fmt ") == 0) {
      if (number(chunk + 10, std::uint16_t{}) != 1 || number(chunk + 12, std::uint32_t{}) != kSamplesPerSecond ||
          number(chunk + 22, std::uint16_t{}) != 16) {
        throw std::runtime_error(path.string() + ": expected mono recordings with 16 bits and 8 kHz");
      }
    } else if (content.compare(chunk, 4, "data") == 0) {
      const auto count = static_cast<std::int64_t>(std::min(size, content.size() - chunk - 8) / 2);
      std::vector<std::int16_t> samples(static_cast<std::size_t>(count));
      std::memcpy(samples.data(), content.data() + chunk + 8, samples.size() * 2);
      return torch::from_blob(samples.data(), {count}, torch::kShort).to(torch::kFloat) / 32768;
    }
    chunk += 8 + size + size % 2;
  }
  throw std::runtime_error(path.string() + " contains no samples");
}

struct Recordings {
  Tensor features;  // [frames, recordings, bands]
  Tensor lengths;   // frames of each recording
  Tensor digits;

  [[nodiscard]] Recordings select(const Tensor& which) const {
    return {features.index_select(1, which), lengths.index_select(0, which), digits.index_select(0, which)};
  }
};

// Reads the test recordings or the others. Longer ones are cut after `frames` frames.
Recordings read_recordings(const fs::path& folder, bool test, int bands, int frames) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();  // digit_speaker_index
    if (entry.path().extension() != ".wav" || std::count(name.begin(), name.end(), '_') != 2) continue;
    if ((std::stoi(name.substr(name.rfind('_') + 1)) < kTestRecordings) == test) paths.push_back(entry.path());
  }
  if (paths.empty()) throw std::runtime_error("no recordings of FSDD in " + folder.string());
  std::sort(paths.begin(), paths.end());
  const Tensor filters = mel_filters(bands);
  std::vector<Tensor> features;
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> digits;
  for (const fs::path& path : paths) {
    const Tensor mine = log_mel(read_wave(path), filters).slice(0, 0, frames);
    features.push_back(torch::constant_pad_nd(mine, {0, 0, 0, frames - mine.size(0)}));
    lengths.push_back(mine.size(0));
    digits.push_back(path.stem().string()[0] - '0');
  }
  return {torch::stack(features, 1), torch::tensor(lengths), torch::tensor(digits)};
}

// A GRU and a classifier of its final state. All ranks hold all weights; each has a piece of the sequences.
class Network {
 public:
  Network(weft::CommunicatorPtr comm, Settings& settings)
      : comm_(std::move(comm)),
        gru_(static_cast<std::int64_t>(settings["--bands"]), static_cast<std::int64_t>(settings["--hidden"])),
        classifier_(static_cast<std::int64_t>(settings["--hidden"]), kClasses),
        chunks_(static_cast<std::int64_t>(settings["--chunks"])) {}

  [[nodiscard]] std::vector<Tensor> parameters() const {
    auto all = gru_->parameters();
    const auto more = classifier_->parameters();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // Collective. Returns the scores on the last rank, which has the end of the sequences; nothing on other ranks.
  std::optional<Tensor> operator()(const Recordings& batch) {
    const std::int64_t frames = batch.features.size(0);
    const std::int64_t begin = frames * comm_->rank() / comm_->size();
    const std::int64_t end = frames * (comm_->rank() + 1) / comm_->size();
    const auto named = gru_->named_parameters();
    const Tensor input = torch::linear(batch.features.slice(0, begin, end), named["weight_ih_l0"], named["bias_ih_l0"]);
    const Tensor lengths = (batch.lengths - begin).clamp(0, end - begin);
    std::vector<Tensor> finals;
    for (const Tensor& rows : torch::arange(batch.features.size(1)).chunk(chunks_)) {
      Tensor state = torch::zeros({rows.size(0), named["weight_hh_l0"].size(1)});
      if (comm_->rank() > 0) state = weft::collective::recv(state, comm_, comm_->rank() - 1).tensor;
      state = std::get<1>(weft::time_parallel::gru_sequence(input.index_select(1, rows), state, named["weight_hh_l0"],
                                                            named["bias_hh_l0"], lengths.index_select(0, rows),
                                                            /*reverse=*/false));
      if (comm_->rank() + 1 < comm_->size()) {
        weft::collective::send(state, comm_, comm_->rank() + 1);
      } else {
        finals.push_back(state);
      }
    }
    if (finals.empty()) return std::nullopt;
    return classifier_->forward(torch::cat(finals));
  }

  // Collective. Sums the gradients of all ranks.
  void sum_gradients() {
    const torch::NoGradGuard no_grad;
    for (Tensor& parameter : gradients()) parameter.copy_(weft::collective::all_reduce(parameter, comm_));
  }

  // Collective. Returns the last rank's number on all ranks.
  double from_last(double value) {
    const torch::NoGradGuard no_grad;
    return weft::collective::broadcast(torch::tensor(value, torch::kDouble), comm_, comm_->size() - 1).item<double>();
  }

 private:
  // The gradients of all parameters; zeros for those that this rank does not use.
  std::vector<Tensor> gradients() {
    std::vector<Tensor> all;
    for (Tensor& parameter : parameters_) {
      if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
      all.push_back(parameter.grad());
    }
    return all;
  }

  weft::CommunicatorPtr comm_;
  torch::nn::GRU gru_;
  torch::nn::Linear classifier_;
  std::vector<Tensor> parameters_ = parameters();
  std::int64_t chunks_;
};

// Collective. Returns the mean loss.
double train(Network& network, torch::optim::Optimizer& optimizer, const Recordings& recordings,
             const std::vector<Tensor>& batches) {
  double total = 0;
  for (const Tensor& numbers : batches) {
    const Recordings batch = recordings.select(numbers);
    optimizer.zero_grad();
    const std::optional<Tensor> scores = network(batch);
    std::optional<Tensor> loss;
    if (scores) loss = torch::nn::functional::cross_entropy(*scores, batch.digits);
    weft::backward(loss);
    network.sum_gradients();
    torch::nn::utils::clip_grad_norm_(network.parameters(), 1.0);
    optimizer.step();
    total += network.from_last(loss ? loss->item<double>() : 0);
  }
  return total / static_cast<double>(batches.size());
}

// Collective. Returns the fraction of correctly recognised recordings.
double accuracy(Network& network, const Recordings& test) {
  const torch::NoGradGuard no_grad;
  const std::optional<Tensor> scores = network(test);
  const double right = scores ? scores->argmax(1).eq(test.digits).to(torch::kDouble).mean().item<double>() : 0;
  return network.from_last(right);
}

void run(const weft::CommunicatorPtr& comm, const fs::path& folder, Settings settings) {
  const int bands = static_cast<int>(settings["--bands"]);
  const int frames = static_cast<int>(settings["--frames"]);
  const Recordings training = read_recordings(folder, false, bands, frames);
  const Recordings test = read_recordings(folder, true, bands, frames);
  torch::manual_seed(static_cast<std::uint64_t>(settings["--seed"]));  // all ranks draw the same weights
  Network network(comm, settings);
  torch::optim::Adam optimizer(network.parameters(), torch::optim::AdamOptions(settings["--rate"]));
  const weft::data::BatchOptions shuffling{.size = static_cast<std::int64_t>(settings["--batch"]),
                                           .seed = static_cast<std::uint64_t>(settings["--seed"])};
  const std::int64_t count = training.digits.size(0);
  const bool first = comm->rank() == 0;
  if (first) {
    std::printf("%ld recordings for training, %ld for testing, %d ranks\n", long(count), long(test.digits.size(0)),
                comm->size());
  }
  for (int epoch = 0; epoch < settings["--epochs"]; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    const double loss = train(network, optimizer, training, weft::data::shuffled_batches(count, epoch, shuffling));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const double recognised = accuracy(network, test);
    if (!first) continue;
    std::printf("epoch %d: loss %.4f, test accuracy %.3f, %.1f s\n", epoch + 1, loss, recognised, seconds.count());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  torch::set_num_threads(1);
  try {
    if (argc < 2 || argv[1][0] == '-') throw std::invalid_argument("expected the folder with the recordings of FSDD");
    run(weft::world(), argv[1], parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spoken_digits: %s\n", error.what());
    // Do not return: MPI_Finalize would wait for ranks that wait for this one. The launcher terminates them.
    std::_Exit(EXIT_FAILURE);
  }
  return 0;
}
