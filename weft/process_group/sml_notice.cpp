#include "weft/process_group/sml_notice.h"

#include <vector>

namespace weft::process_group {
namespace {

c10::intrusive_ptr<c10d::Store> own_connection(const c10::intrusive_ptr<c10d::Store>& store) {
  try {
    return store->clone();
  } catch (const std::exception&) {  // somebody's own store, which cannot
    return store;
  }
}

}  // namespace

Notice::Notice(const c10::intrusive_ptr<c10d::Store>& store, std::string key, int rank)
    : store_(own_connection(store)), key_(std::move(key)), name_("rank " + std::to_string(rank)) {}

void Notice::tell(const std::string& reason) noexcept {
  try {
    const std::string text = name_ + " gave up: " + reason;
    static_cast<void>(store_->compareSet(key_, std::vector<std::uint8_t>{}, {text.begin(), text.end()}));
  } catch (const std::exception&) {  // nobody can be told any more
  }
}

std::string Notice::heard() noexcept {
  try {
    if (!store_->check({key_})) return "";
    const std::vector<std::uint8_t> bytes = store_->get(key_);
    const std::string text(bytes.begin(), bytes.end());
    return text.starts_with(name_ + " ") ? "" : text;
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace weft::process_group
