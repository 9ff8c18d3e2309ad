#include "weft/text/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace weft::text {
namespace {

TEST(Utf8Test, AcceptsWellFormedText) {
  for (const char* text : {"", "layer 1", "h\xc3\xa9", "\xe7\xb9\x94", "\xf0\x9f\xa7\xb5", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
  EXPECT_TRUE(is_utf8(std::string(1, '\0')));
}

TEST(Utf8Test, RejectsMalformedBytes) {
  for (const char* bytes : {"\xff", "\x80", "a\xc3", "\xc3(", "\xe7\xb9", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                            "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"}) {
    EXPECT_FALSE(is_utf8(bytes)) << bytes;
  }
}

}  // namespace
}  // namespace weft::text
