// The functions of fmt that its headers leave to the shared library, compiled into portable programs: Debian has no
// static libfmt. Everything else of what qgen uses is inline in the headers; a missing function fails the link.
#include <fmt/format-inl.h>

template auto fmt::detail::thousands_sep_impl(fmt::detail::locale_ref) -> fmt::detail::thousands_sep_result<char>;
template auto fmt::detail::decimal_point_impl(fmt::detail::locale_ref) -> char;
