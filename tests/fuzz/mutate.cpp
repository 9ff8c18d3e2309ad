// Driver for libFuzzer targets without libFuzzer: runs a fixed number of seeded mutations of a corpus.
//
// mutate <corpus folder>: runs WEFT_FUZZ_RUNS inputs (default 200,000) with WEFT_FUZZ_SEED (default 1). With
// WEFT_FUZZ_KEEP=1, it writes each input to ./fuzz-input.bin, so that `mutate <file>` can repeat a crash.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;
constexpr std::size_t kLongest = 8192;

Input read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

class Mutator {
 public:
  Mutator(std::vector<Input> corpus, std::uint64_t seed) : corpus_(std::move(corpus)), random_(seed) {}

  Input next() {
    Input input = pick();
    for (std::uint64_t i = 1 + random_() % 8; i > 0; --i) mutate(input);
    if (input.size() > kLongest) input.resize(kLongest);
    return input;
  }

 private:
  const Input& pick() { return corpus_[random_() % corpus_.size()]; }
  std::size_t place(const Input& input) { return input.empty() ? 0 : random_() % input.size(); }

  void mutate(Input& input) {
    static constexpr std::uint8_t kEdges[] = {0, 1, 0x7f, 0x80, 0xff, 0x10, 0x20, 0x40};
    const auto at = static_cast<std::ptrdiff_t>(place(input));
    switch (random_() % 7) {
      case 0:  // flip a bit
        if (!input.empty()) input[static_cast<std::size_t>(at)] ^= static_cast<std::uint8_t>(1U << (random_() % 8));
        break;
      case 1:  // replace a byte
        if (!input.empty()) input[static_cast<std::size_t>(at)] = static_cast<std::uint8_t>(random_());
        break;
      case 2:  // write a boundary value
        if (!input.empty()) input[static_cast<std::size_t>(at)] = kEdges[random_() % std::size(kEdges)];
        break;
      case 3:  // truncate
        input.resize(static_cast<std::size_t>(at));
        break;
      case 4:  // remove a piece
        input.erase(input.begin() + at,
                    input.begin() +
                        std::min<std::ptrdiff_t>(std::ssize(input), at + static_cast<std::ptrdiff_t>(random_() % 32)));
        break;
      case 5:  // insert random bytes
        for (std::uint64_t i = random_() % 16; i > 0; --i)
          input.insert(input.begin() + at, static_cast<std::uint8_t>(random_()));
        break;
      default: {  // append another input
        const Input& other = pick();
        input.insert(input.end(), other.begin(), other.end());
      }
    }
  }

  std::vector<Input> corpus_;
  std::mt19937_64 random_;
};

void run(const Input& input) {
  // A copy of the exact size lets the sanitizer detect overreads.
  const std::vector<std::uint8_t> exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s <corpus folder or one input>\n", argv[0]), 2;
  if (std::filesystem::is_regular_file(argv[1])) return run(read(argv[1])), 0;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<Input> corpus;
  for (const auto& path : paths) corpus.push_back(read(path));
  if (corpus.empty()) return std::fprintf(stderr, "%s contains no inputs\n", argv[1]), 2;
  for (const Input& input : corpus) run(input);
  Mutator mutator(corpus, setting("WEFT_FUZZ_SEED", 1));
  const std::uint64_t runs = setting("WEFT_FUZZ_RUNS", 200'000);
  for (std::uint64_t i = 0; i < runs; ++i) {
    const Input input = mutator.next();
    if (std::getenv("WEFT_FUZZ_KEEP") != nullptr) {
      std::ofstream("fuzz-input.bin", std::ios::binary)
          .write(reinterpret_cast<const char*>(input.data()), std::ssize(input));
    }
    run(input);
  }
  std::printf("ran %zu corpus inputs and %llu mutations\n", corpus.size(), static_cast<unsigned long long>(runs));
  return 0;
}
