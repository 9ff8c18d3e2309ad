#include "weft/process_group/sml/abort_flag.h"

#include <vector>

namespace weft::process_group {
namespace {

c10::intrusive_ptr<c10d::Store> own_connection(const c10::intrusive_ptr<c10d::Store>& store) {
  try {
    return store->clone();
  } catch (const std::exception&) {  // a custom store without clone()
    return store;
  }
}

}  // namespace

AbortFlag::AbortFlag(const c10::intrusive_ptr<c10d::Store>& store, std::string key, int rank)
    : store_(own_connection(store)), key_(std::move(key)), name_("rank " + std::to_string(rank)) {}

void AbortFlag::set(const std::string& reason) noexcept {
  try {
    const std::string text = name_ + " aborted: " + reason;
    static_cast<void>(store_->compareSet(key_, std::vector<std::uint8_t>{}, {text.begin(), text.end()}));
  } catch (const std::exception&) {  // the store is unreachable
  }
}

std::string AbortFlag::reason() noexcept {
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
