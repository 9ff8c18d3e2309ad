// The progress bar on a pseudo-terminal and on a file.
#include "weft/trace/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace weft::trace {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string content(std::FILE* file) {
  std::rewind(file);
  std::string text(10'000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    const winsize size{24, columns, 0, 0};
    int end = -1;
    if (openpty(&master_, &end, nullptr, nullptr, &size) == 0) out_ = fdopen(end, "w");
  }
  ~Terminal() { close(master_); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  [[nodiscard]] std::FILE* out() const { return out_; }
  // Closes the writing end first, so that reading ends after the last byte.
  [[nodiscard]] std::string shown() {
    std::fclose(out_);
    std::string text;
    char byte = 0;
    while (read(master_, &byte, 1) == 1) text.push_back(byte);
    return text;
  }

 private:
  int master_ = -1;
  std::FILE* out_ = nullptr;
};

TEST(ProgressBar, PrintsALineForEachTenth) {
  std::FILE* file = std::tmpfile();
  {
    ProgressBar bar("epoch 1/2", 40, file);
    for (int i = 1; i <= 40; ++i) bar.update(i, "loss " + std::to_string(i));
  }
  const std::string text = content(file);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
  EXPECT_THAT(text, testing::StartsWith("epoch 1/2  4/40  loss 4\n"));
  EXPECT_THAT(text, testing::EndsWith("epoch 1/2  40/40  loss 40\n"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  std::fclose(file);
}

TEST(ProgressBar, RedrawsOnATerminalAndErasesItself) {
  Terminal terminal(100);
  {
    ProgressBar bar("epoch 1/2", 1000, terminal.out());
    for (int i = 1; i <= 1000; ++i) bar.update(i);
  }
  const std::string text = terminal.shown();
  EXPECT_THAT(text, HasSubstr("[##############################] 1000/1000"));
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  EXPECT_THAT(text, testing::EndsWith("\r\x1b[K"));
  EXPECT_LT(std::count(text.begin(), text.end(), '\r'), 100);  // fewer than the number of updates
}

TEST(ProgressBar, IsNeverWiderThanTheTerminal) {
  Terminal terminal(30);
  {
    ProgressBar bar("a title of some length", 3, terminal.out());
    bar.update(1, std::string(200, 'x'));
  }
  EXPECT_EQ(terminal.shown().size(), 29 + 2 * std::string("\r\x1b[K").size());
}

TEST(ProgressBar, EnvironmentVariableOverridesTerminalDetection) {
  Terminal terminal(100);
  setenv("WEFT_PROGRESS", "lines", 1);
  {
    ProgressBar("to a file", 1, terminal.out()).update(1);
  }
  EXPECT_EQ(terminal.shown(), "to a file  1/1\r\n");
  setenv("WEFT_PROGRESS", "bar", 1);
  std::FILE* file = std::tmpfile();
  {
    ProgressBar("to a terminal", 1, file).update(1);
  }
  EXPECT_THAT(content(file), HasSubstr("[##############################] 1/1"));
  std::fclose(file);
  unsetenv("WEFT_PROGRESS");
}

TEST(ProgressBar, HandlesEmptyTotalsAndOutOfRangeValues) {
  std::FILE* file = std::tmpfile();
  ProgressBar none("none", 0, file);
  none.update(0);
  ProgressBar over("over", 2, file);
  over.update(7);
  over.update(-1);
  EXPECT_EQ(content(file), "none  0/0\nover  2/2\n");
  std::fclose(file);
}

}  // namespace
}  // namespace weft::trace
